"""The pages of the board: one script each, and what they share."""

#: name -> title, icon; the files are not in a folder named pages, which Streamlit would make a menu of on its own
PAGES = {
    "overview": ("Overview", ":material/show_chart:"),
    "benchmark": ("Benchmark", ":material/grid_on:"),
    "adaptivity": ("Adaptivity", ":material/tune:"),
    "inside": ("Look inside", ":material/search:"),
    "speed": ("Memory and speed", ":material/speed:"),
    "published": ("Published", ":material/menu_book:"),
    "methods": ("Methods", ":material/list:"),
}
