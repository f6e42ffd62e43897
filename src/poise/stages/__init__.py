"""What the workflow's rules call: each stage reads files, calls pure functions, writes files."""
