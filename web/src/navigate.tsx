/** Moves between views: the address is the state, the back button works. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { parse, write, type Route } from "./route";

const listeners = new Set<() => void>();

/** Goes to a view; ``replace`` for changes that are no step of their own, such as typing. */
export function navigate(route: Route, replace = false): void {
  const address = write(route);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  listeners.forEach((listener) => listener());
}

export function useRoute(): Route {
  const [search, setSearch] = useState(location.search);
  useEffect(() => {
    const look = () => setSearch(location.search);
    listeners.add(look);
    addEventListener("popstate", look);
    return () => {
      listeners.delete(look);
      removeEventListener("popstate", look);
    };
  }, []);
  return parse(search);
}

interface LinkProps {
  to: Route;
  children: ComponentChildren;
  class?: string | undefined;
  label?: string;
  current?: boolean;
}

/** A link the browser can open in a new tab, and the page follows without loading. */
export function Link({ to, children, class: kind, label, current }: LinkProps) {
  const follow = (event: MouseEvent) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to);
  };
  return (
    <a
      href={write(to)}
      class={kind}
      onClick={follow}
      aria-label={label}
      aria-current={current ? "page" : undefined}
    >
      {children}
    </a>
  );
}
