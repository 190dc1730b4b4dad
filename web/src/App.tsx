/** The frame of every view: header, drop target, token, and the view the address names. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { api, whenRefused } from "./api/service";
import type { Lake } from "./api/types";
import { useRequest } from "./api/useRequest";
import { LakeContext } from "./lake";
import { Link, useRoute } from "./navigate";
import { useDropped } from "./parts/Drop";
import { Notice } from "./parts/Notice";
import { Name } from "./parts/Name";
import { ThemeSwitch } from "./parts/Theme";
import { TokenForm } from "./parts/TokenForm";
import { LIKELY, MAP, type Route } from "./route";
import { useUpload, type Uploading } from "./upload";
import { EnrichView } from "./views/EnrichView";
import { JoinView } from "./views/JoinView";
import { MapView } from "./views/MapView";
import { RelationsView } from "./views/RelationsView";
import { SearchView } from "./views/SearchView";
import { StartView } from "./views/StartView";
import { TableView } from "./views/TableView";
import { shorten } from "./words";

export function App() {
  const route = useRoute();
  const { entered, locked, enter } = useLock();
  const lake = useRequest(`lake ${entered}`, api.lake);
  const uploading = useUpload(lake.data?.limits.upload_bytes);
  const over = useDropped(useCallback((file: File) => uploading.start(file), [uploading.start]));
  const welcome = lake.data !== undefined && !lake.stale;
  useMovedFocus(route);
  return (
    <LakeContext.Provider value={lake.data}>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Header lake={lake.data} route={route} />
      <main id="main" tabIndex={-1}>
        {locked ? (
          <TokenForm onEnter={enter} wrong={entered > 0 && !welcome} />
        ) : (
          <View route={route} uploading={uploading} key={`${route.view} ${entered}`} />
        )}
      </main>
      {over && (
        <div class="drop-over" aria-hidden="true">
          <strong>Drop the file to search with it</strong>
        </div>
      )}
    </LakeContext.Provider>
  );
}

/** Whether the service wants another token, whichever request it refused, and how often one came. */
function useLock() {
  const [entered, setEntered] = useState(0);
  const [refused, setRefused] = useState(-1);
  useEffect(() => whenRefused(() => setRefused(entered)), [entered]);
  return { entered, locked: refused === entered, enter: () => setEntered(entered + 1) };
}

function Header({ lake, route }: { lake: Lake | undefined; route: Route }) {
  const mapped = { view: "map", ...MAP, table: route.view === "table" && "table" in route.source ? route.source.table : "" } as const;
  return (
    <header class="top">
      <Link to={{ view: "start", text: "" }} class="brand" label="deepjoin, start page">
        <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true">
          <circle cx="12" cy="16" r="8" />
          <circle cx="20" cy="16" r="8" />
        </svg>
        <span>deepjoin</span>
      </Link>
      {lake && <Name text={lake.name} most={28} class="lake-name" />}
      <nav aria-label="Views">
        <Link to={{ view: "start", text: "" }} current={route.view === "start"}>
          Search
        </Link>
        <Link to={mapped} current={route.view === "map"}>
          Map
        </Link>
        <Link to={{ view: "relations", least: LIKELY }} current={route.view === "relations"}>
          Relations
        </Link>
        <ThemeSwitch />
      </nav>
    </header>
  );
}

function View({ route, uploading }: { route: Route; uploading: Uploading }) {
  switch (route.view) {
    case "start":
      return <StartView text={route.text} uploading={uploading} />;
    case "table":
      return <TableView {...route} />;
    case "search":
      return <SearchView {...route} />;
    case "join":
      return <JoinView {...route} />;
    case "map":
      return <MapView {...route} />;
    case "relations":
      return <RelationsView {...route} />;
    case "enrich":
      return <EnrichView {...route} />;
    case "unknown":
      return (
        <Notice title="Page not found" icon="find" alone actions={<Link to={{ view: "start", text: "" }}>Back to the start</Link>}>
          <p>The address may have been cut when it was copied.</p>
        </Notice>
      );
  }
}

/** Names the window after the view; a new view starts at its top, read from its heading. */
function useMovedFocus(route: Route): void {
  const place = titleOf(route);
  const before = useRef(place);
  useEffect(() => {
    document.title = place ? `${place} · deepjoin` : "deepjoin";
    if (before.current === place) return;
    before.current = place;
    document.getElementById("main")?.focus({ preventScroll: true });
    scrollTo({ top: 0 });
  }, [place]);
}

function titleOf(route: Route): string {
  switch (route.view) {
    case "start":
    case "unknown":
      return "";
    case "table":
      return "upload" in route.source ? "Your table" : shorten(route.source.table, 60);
    case "search":
      return `Joins of ${shorten(route.column, 60)}`;
    case "join":
      return `Join with ${shorten(route.hit.table, 60)}`;
    case "enrich":
      return "upload" in route.source ? "Enrich your table" : `Enrich ${shorten(route.source.table, 60)}`;
    case "map":
      return route.table ? `Map of ${shorten(route.table, 60)}` : "Map";
    case "relations":
      return "Relations";
  }
}
