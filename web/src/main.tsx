/** Starts the page. */

import { render } from "preact";
import { App } from "./App";
import { takeToken } from "./api/service";
import { applyTheme } from "./parts/Theme";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/controls.css";
import "./styles/marks.css";
import "./styles/boxes.css";
import "./styles/start.css";
import "./styles/table.css";
import "./styles/hits.css";
import "./styles/join.css";
import "./styles/enrich.css";
import "./styles/map.css";
import "./styles/relations.css";
import "./styles/narrow.css";

takeToken();
applyTheme();
const place = document.getElementById("page");
if (place) render(<App />, place);
