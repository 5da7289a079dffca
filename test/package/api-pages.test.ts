/** The pages in docs/api are programs: what an example prints stands in the block of text below it. */
import { execFile } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const pages = join(root, 'docs/api');
const folder = mkdtempSync(join(tmpdir(), 'kvant-pages-'));
const run = promisify(execFile);

beforeAll(() => {
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(root, join(folder, 'node_modules/kvant'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function blocksOf(page: string, language: string): string[] {
  const text = readFileSync(join(pages, page), 'utf8');
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'gm'))].map(
    ([, block]) => block!,
  );
}

describe('the API pages', () => {
  it.each(readdirSync(pages))('%s runs, and prints what it says', async (page) => {
    const name = page.replace('.md', '.mjs');
    writeFileSync(join(folder, name), blocksOf(page, 'js').join(''));
    const env = { ...process.env, MODEL: join(root, 'models/demo-text'), NO_COLOR: '1' };
    const { stdout } = await run(process.execPath, [name], { cwd: folder, env, timeout: 120_000 });
    expect(blocksOf(page, 'text').length).toBeGreaterThan(2);
    expect(stdout).toBe(blocksOf(page, 'text').join(''));
  });
});
