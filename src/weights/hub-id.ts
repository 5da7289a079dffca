/** Names of models on the hub: `org/name[:tag][@revision]`, also behind `hf:`. */

/** A hub id taken apart. */
export interface HubId {
  readonly id: string;
  readonly revision: string;
  /** Which GGUF file. */
  readonly tag?: string;
}

/** What says that a name is one on the hub: `hf:org/name`. */
export const HUB_PREFIX = /^(?:hf:(?:\/\/)?|(?:hf\.co|huggingface\.co)\/(?=[^/]+\/))/i;

/** @returns undefined where the text is no hub id */
export function parseHubId(text: string): HubId | undefined {
  const match = /^([\w.-]{1,96}\/[\w.-]{1,96})(?::([\w.-]{1,64}))?(?:@([\w./-]{1,255}))?$/.exec(text);
  const [, id, tag, revision = 'main'] = match ?? [];
  // The hub keeps these names for itself.
  if (id !== undefined && /^(models|datasets|spaces|api)\//.test(id)) return undefined;
  if (id === undefined || /(^|\/)\.|\.\.|--/.test(id) || /(^|\/)\.\.?(\/|$)|^\/|\/$/.test(revision))
    return undefined;
  return { id, revision, ...(tag !== undefined && { tag }) };
}
