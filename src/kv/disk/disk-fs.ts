/** What the disk tier asks of a file system: a part of node:fs/promises, so that tests can put a faulty one in its place. */

export interface DiskFile {
  read(to: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }>;
  write(
    from: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ bytesWritten: number }>;
  stat(): Promise<{ readonly size: number }>;
  utimes(accessed: Date, modified: Date): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface DiskStat {
  readonly size: number;
  readonly mtimeMs: number;
  isDirectory(): boolean;
}

export interface DiskFs {
  /** `r`: to read and be dated. `wx`: made anew, with the permissions `mode`. */
  open(path: string, flags: 'r' | 'wx', mode?: number): Promise<DiskFile>;
  mkdir(path: string, options: { readonly mode: number }): Promise<unknown>;
  readdir(path: string): Promise<string[]>;
  stat(path: string): Promise<DiskStat>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
}

/** Prompts are in these files, as ids: they are for the user who made them, and for nobody else. */
export const FILE_MODE = 0o600;
export const FOLDER_MODE = 0o700;

/** Reads from the beginning until `to` is full or the file ends; gives the bytes read. */
export async function readFully(file: DiskFile, to: Uint8Array): Promise<number> {
  let at = 0;
  while (at < to.length) {
    const { bytesRead } = await file.read(to, at, to.length - at, at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return at;
}

/** Writes the parts one after the other, from the beginning. */
export async function writeFully(file: DiskFile, parts: readonly Uint8Array[]): Promise<void> {
  let position = 0;
  for (const part of parts) {
    for (let at = 0; at < part.length; ) {
      const { bytesWritten } = await file.write(part, at, part.length - at, position);
      if (bytesWritten === 0) throw Object.assign(new Error('Nothing was written.'), { code: 'EIO' });
      at += bytesWritten;
      position += bytesWritten;
    }
  }
}
