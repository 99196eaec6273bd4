"""The application, and how it is served: guards, the document of the API, processes."""
