/** What the errors of a file system mean, in words: for messages to people who do not know `EROFS` by heart. */

const MEANINGS: Readonly<Record<string, string>> = {
  EACCES: 'this user has no permission',
  EPERM: 'this user has no permission',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  ENOTDIR: 'a file has the place of a folder',
  EISDIR: 'it is a folder',
  ELOOP: 'symbolic links lead in a circle',
  ENAMETOOLONG: 'the name is too long',
  EMFILE: 'too many files are open',
  ENFILE: 'too many files are open',
  EIO: 'the disk fails',
  EEXIST: 'it is there already',
  ERR_INVALID_ARG_VALUE: 'the name is not valid',
};

/** The code of a system error: `ENOSPC`, or `unknown`. */
export function systemCode(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : 'unknown';
}

/**
 * Why the file system refused, as the end of a sentence: `the file system is read-only (EROFS)`.
 * `missing`: what `ENOENT` means there.
 */
export function systemReason(error: unknown, missing = 'there is no such file'): string {
  const code = systemCode(error);
  if (code === 'unknown') return error instanceof Error ? error.message : String(error);
  const { file } = error as { readonly file?: string };
  if (code === 'ENOTDIR' && file !== undefined) return `${file} is a file, not a folder (ENOTDIR)`;
  const meaning = code === 'ENOENT' ? missing : MEANINGS[code];
  return meaning === undefined ? code : `${meaning} (${code})`;
}
