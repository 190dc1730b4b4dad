/** The lake the service serves, for every view that asks. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Lake } from "./api/types";

export const LakeContext = createContext<Lake | undefined>(undefined);

export function useLake(): Lake | undefined {
  return useContext(LakeContext);
}
