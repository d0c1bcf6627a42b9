"""The service without HTTP."""
