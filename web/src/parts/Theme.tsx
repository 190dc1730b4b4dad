/** Light, dark, or as the system has it. */

import { useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon";

type Theme = "system" | "light" | "dark";
const NAME = "deepjoin-theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const LABELS: Record<Theme, string> = {
  system: "as the system",
  light: "light",
  dark: "dark",
};

function stored(): Theme {
  const theme = localStorage.getItem(NAME);
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function applyTheme(theme: Theme = stored()): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(stored);
  const change = () => {
    const next = NEXT[theme];
    localStorage.setItem(NAME, next);
    applyTheme(next);
    setTheme(next);
  };
  const label = `Colours: ${LABELS[theme]}. Change to ${LABELS[NEXT[theme]]}`;
  return (
    <button type="button" class="quiet icon-only" aria-label={label} title={label} onClick={change}>
      <Icon name={theme satisfies IconName} />
    </button>
  );
}
