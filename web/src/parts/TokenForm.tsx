/** Asks for the token of a service that wants one. */

import { useState } from "preact/hooks";
import { keep } from "../api/service";

export function TokenForm({ onEnter, wrong }: { onEnter: () => void; wrong: boolean }) {
  const [token, setToken] = useState("");
  const enter = (event: Event) => {
    event.preventDefault();
    keep.write(token.trim());
    onEnter();
  };
  return (
    <form class="panel token" onSubmit={enter}>
      <h1>This lake needs a token</h1>
      <p class="hint">
        Ask whoever runs the service for it. It is kept until you close this tab.
      </p>
      <div class="field">
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          required
          value={token}
          aria-invalid={wrong}
          aria-describedby={wrong ? "token-wrong" : undefined}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
        {wrong && (
          <p id="token-wrong" class="bad" role="alert">
            Wrong token. Check for spaces and missing characters.
          </p>
        )}
      </div>
      <button type="submit" class="primary">
        Open the lake
      </button>
    </form>
  );
}
