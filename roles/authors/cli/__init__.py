from roles.authors.cli.author import CliAuthor as CliAuthor
