/** Starts the page. */

import { render } from "preact";
import { App } from "./App";
import { takeToken } from "./api/service";
import { applyTheme } from "./parts/Theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/views.css";

takeToken();
applyTheme();
const place = document.getElementById("page");
if (place) render(<App />, place);
