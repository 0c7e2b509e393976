"""How Sphinx builds the documentation: ``make docs`` writes it to ``site/``."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
# The gallery is run with one thread per process, as its printed numbers were checked.
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "tokengeom"
author = "The tokengeom authors"
copyright = "2026, the tokengeom authors"  # noqa: A001 - Sphinx's name
release = version = installed_version("tokengeom")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
    "command_pages",
    "docstring_markup",
    "gallery_pages",
    "mathml",
    "notebook_pages",
    "paper_page",
    "source_links",
]
templates_path = ["_templates"]
default_role = "py:obj"
exclude_patterns = ["gallery", "examples/*.ipynb", "examples/*.py", "examples/*.md5", "examples/*.zip"]
nitpicky = False
language = "en"

html_theme = "pydata_sphinx_theme"
html_title = "tokengeom"
html_static_path = ["_static"]
html_css_files = ["tokengeom.css"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "tokengeom"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# Pages without pages below them need no list of those.
html_sidebars = {"index": [], "getting_started": [], "theory": []}

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"

autosummary_generate = True
autodoc_typehints = "signature"
add_module_names = False
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 100
smartquotes = False
autodoc_member_order = "bysource"
autodoc_mock_imports = ["lightning"]

copybutton_prompt_text = r">>> |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": "/",
    "within_subsection_order": "gallery_pages.ReadingOrder",
    "image_scrapers": ("matplotlib", "gallery_pages"),
    "write_computation_times": False,
    "min_reported_time": 3600,
    "capture_repr": (),
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "matplotlib_animations": False,
}

# A page that is written in Markdown may be read as a file too: there its links end in .md.
suppress_warnings = ["config.cache"]
warnings.filterwarnings("error", category=DeprecationWarning, module="tokengeom")
