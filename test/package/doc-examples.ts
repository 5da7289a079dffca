/** The programs in docs/in-your-app.md, by the file name in their first line. */
import { readFileSync } from 'node:fs';

export function docExamples(): Map<string, string> {
  const page = readFileSync(new URL('../../docs/in-your-app.md', import.meta.url), 'utf8');
  return new Map(
    [...page.matchAll(/^```js\n\/\/ (\S+)\n([\s\S]*?)^```$/gm)].map(([, name, text]) => [name!, text!]),
  );
}
