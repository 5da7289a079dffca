/** What lies beside a GGUF file to see or hear for it (mmproj). None is read: that is told, not left to be found out. */

import { dirname, join } from 'node:path';
import type { Notice } from '../../notice.js';
import { GgufFile } from '../../weights/gguf.js';
import { projectorsOf } from '../../weights/gguf-files.js';

/** @returns undefined where nothing of the kind lies beside `path` */
export async function projectorNotice(path: string): Promise<Notice | undefined> {
  const [name] = await projectorsOf(dirname(path));
  if (name === undefined) return undefined;
  const projector = await kindOf(join(dirname(path), name));
  return {
    message:
      'what sees or hears for a model is not read from GGUF files: pictures are refused. Its safetensors checkpoint sees where docs/vision.md lists the family',
    fields: { file: name, ...(projector === undefined ? {} : { projector }) },
  };
}

/** What the file calls itself: `qwen2.5vl_merger`, `gemma3`. One that cannot be read is left alone. */
async function kindOf(path: string): Promise<string | undefined> {
  try {
    await using file = await GgufFile.open(path);
    const keys = ['clip.projector_type', 'clip.vision.projector_type', 'clip.audio.projector_type'];
    return keys.map((key) => file.metadata.text(key)).find((kind) => kind !== undefined);
  } catch {
    return undefined;
  }
}
