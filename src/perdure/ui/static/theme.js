// Before the first paint: the theme that was chosen here, else the system's.
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
