"""What an author can do in a conversation: each module offers one kind of tool."""
