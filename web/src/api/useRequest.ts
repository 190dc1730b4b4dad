/** Asks the service from within a view: loading, failing, asking again. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Latest } from "./latest";
import { Recent } from "./recent";

/** Waiting shorter than this shows nothing, so that quick answers do not flicker. */
const SLOW = 250;
const recent = new Recent();
const renewals = new Set<() => void>();

export interface Requested<T> {
  data: T | undefined;
  error: unknown;
  /** Data of an older question is shown while the newer one is being answered. */
  stale: boolean;
  /** Whether the data is an early answer, and a better one is on its way. */
  early: boolean;
  slow: boolean;
  retry: () => void;
}

interface State<T> {
  key: string | null;
  data: T | undefined;
  error: unknown;
  early?: boolean;
}

/** Loads what ``key`` names; null asks nothing. Older answers never overwrite newer ones. */
export function useRequest<T>(
  key: string | null,
  load: (signal: AbortSignal, early: (value: T) => void) => Promise<T>,
): Requested<T> {
  const kept = key === null ? undefined : recent.get<T>(key);
  const [state, setState] = useState<State<T>>({ key, data: kept, error: null });
  const [again, setAgain] = useState(0);
  const latest = useRef(new Latest()).current;
  const settled = state.key === key && !state.early && (state.data !== undefined || state.error !== null);
  const slow = useSlow(key !== null && !settled, `${key} ${again}`);

  useEffect(() => {
    const renewed = () => setAgain((count) => count + 1);
    renewals.add(renewed);
    return () => void renewals.delete(renewed);
  }, []);

  useEffect(() => {
    const known = key === null ? undefined : recent.get<T>(key);
    if (key === null || (known !== undefined && again === 0)) {
      latest.abort();
      setState({ key, data: known, error: null });
      return;
    }
    const run = (signal: AbortSignal) =>
      load(signal, (data) => !signal.aborted && setState({ key, data, error: null, early: true }));
    void latest.run(run).then((outcome) => {
      if (outcome.state === "done") {
        recent.set(key, outcome.value);
        setState({ key, data: outcome.value, error: null });
      } else if (outcome.state === "failed") {
        setState({ key, data: undefined, error: outcome.error });
      }
    });
    return () => latest.abort();
  }, [key, again]);

  const retry = useCallback(() => {
    setState({ key: null, data: undefined, error: null });
    setAgain((count) => count + 1);
  }, []);
  const now: State<T> = state.key !== key && kept !== undefined ? { key, data: kept, error: null } : state;
  return {
    data: now.data,
    error: now.key === key ? now.error : null,
    stale: now.key !== key && now.data !== undefined,
    early: now.key === key && now.early === true,
    slow,
    retry,
  };
}

function useSlow(waiting: boolean, key: string): boolean {
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    setSlow(false);
    if (!waiting) return;
    const timer = setTimeout(() => setSlow(true), SLOW);
    return () => clearTimeout(timer);
  }, [waiting, key]);
  return slow && waiting;
}

/** Puts an answer that came another way, such as that of an upload, where views look for it. */
export function remember(key: string, value: unknown): void {
  recent.set(key, value);
}

/** Asks everything that is shown again, because the service would answer differently now. */
export function renew(): void {
  recent.clear();
  renewals.forEach((renewed) => renewed());
}

export function forget(key: string): void {
  recent.delete(key);
}
