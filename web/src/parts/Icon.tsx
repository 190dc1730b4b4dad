/** The few icons of the page, drawn here so that nothing is fetched. */

const PATHS = {
  drop: "M12 16V4m0 0L7 9m5-5 5 5M4 16v3a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-3",
  paste: "M9 4h6v3H9zM9 5H6v15h12V5h-3M9 12h6m-6 4h4",
  find: "M11 5a6 6 0 1 1 0 12 6 6 0 0 1 0-12zm4.5 10.5L20 20",
  map: "M6 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4zm12 3a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM9 20a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM7.7 7l8.6 2M6.5 8 8.6 16m1.8-.6 6.2-4.8",
  table: "M4 5h16v14H4zM4 10h16M4 14.5h16M10 10v9",
  warn: "M12 4 2.8 20h18.4zM12 10v4.5m0 2.6v.2",
  light: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2v2m0 16v2M2 12h2m16 0h2M5 5l1.4 1.4m11.2 11.2L19 19M19 5l-1.4 1.4M6.4 17.6 5 19",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  system: "M4 5h16v11H4zM9 20h6m-3-4v4",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  done: "m5 12.5 4.5 4.5L19 7.5",
  next: "m9 5 7 7-7 7",
  plus: "M12 5v14m-7-7h14",
  close: "m6 6 12 12M18 6 6 18",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
