"""Files and folders: uploads, chunks, and what agents see of them."""
