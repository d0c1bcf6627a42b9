"""Presentation: HTML pages from Jinja2 templates, SVG charts and matplotlib figures.

Import from the modules: `report.write_report`, `search_sheet.write_search_sheet`,
`demo_page.write_demo_page`, `charts`, `figures`.
"""
