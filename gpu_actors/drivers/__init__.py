"""Scripts that run inside a child process. They import the standard library, torch and numpy, and nothing of ours."""
