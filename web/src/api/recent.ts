/** Remembers recent answers for a minute, so that going back shows them at once. */

export class Recent {
  private readonly answers = new Map<string, { value: unknown; at: number }>();

  constructor(
    private readonly most = 40,
    private readonly milliseconds = 60_000,
    private readonly now: () => number = Date.now,
  ) {}

  get<T>(key: string): T | undefined {
    const found = this.answers.get(key);
    if (!found || this.now() - found.at > this.milliseconds) return undefined;
    return found.value as T;
  }

  set(key: string, value: unknown): void {
    this.answers.delete(key);
    this.answers.set(key, { value, at: this.now() });
    const oldest = this.answers.keys().next().value;
    if (this.answers.size > this.most && oldest !== undefined) this.answers.delete(oldest);
  }

  clear(): void {
    this.answers.clear();
  }

  delete(key: string): void {
    this.answers.delete(key);
  }
}
