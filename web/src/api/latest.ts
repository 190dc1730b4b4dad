/** Lets only the newest of several requests count, and ends the others. */

export class Latest {
  private current: AbortController | null = null;

  /** Runs ``load``; whoever came before is aborted and never heard of again. */
  async run<T>(load: (signal: AbortSignal) => Promise<T>): Promise<Outcome<T>> {
    this.abort();
    const own = new AbortController();
    this.current = own;
    try {
      const value = await load(own.signal);
      return own.signal.aborted ? { state: "overtaken" } : { state: "done", value };
    } catch (error) {
      return own.signal.aborted ? { state: "overtaken" } : { state: "failed", error };
    }
  }

  abort(): void {
    this.current?.abort();
    this.current = null;
  }
}

export type Outcome<T> =
  | { state: "done"; value: T }
  | { state: "failed"; error: unknown }
  | { state: "overtaken" };
