"""What is out of view: stubs that stand for it, and the pages that open it."""
