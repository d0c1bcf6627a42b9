from trials import trials  # noqa: F401 - a fixture
