/**
 * Worker threads run built JavaScript. Before any test, whatever in `dist` is older than its source is built
 * again: file by file, without a type check (`npm run types` does that). `KVANT_PREBUILT=1` takes `dist` as it is: on a
 * machine to which a built checkout was carried.
 */
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

export default async function setup(): Promise<void> {
  if (process.env.KVANT_PREBUILT === '1') return;
  const { default: ts } = await import('typescript');
  for (const name of await readdir(join(root, 'src'), { recursive: true })) {
    if (!name.endsWith('.ts') || /\.(test|d)\.ts$/.test(name) || name.includes('/assembly/')) continue;
    const from = join(root, 'src', name);
    const to = join(root, 'dist', name.replace(/\.ts$/, '.js'));
    const [source, built] = await Promise.all([modified(from), modified(to)]);
    if (built >= source) continue;
    const { outputText } = ts.transpileModule(await readFile(from, 'utf8'), {
      fileName: from,
      compilerOptions: {
        target: ts.ScriptTarget.ES2023,
        module: ts.ModuleKind.ESNext,
        verbatimModuleSyntax: true,
        isolatedModules: true,
      },
    });
    await mkdir(dirname(to), { recursive: true });
    await writeFile(`${to}.${process.pid}`, outputText);
    await rename(`${to}.${process.pid}`, to);
  }
  try {
    execFileSync(process.execPath, [join(root, 'scripts/build-wasm.mjs')], { stdio: 'inherit' });
  } catch (error) {
    // While a kernel is being written, tests that do not touch it go on with the last one that compiled.
    if (process.env.CI !== undefined) throw error;
    console.warn('The CPU kernels do not compile; the last build that did is used.');
  }
}

async function modified(path: string): Promise<number> {
  return stat(path).then(
    (s) => s.mtimeMs,
    () => 0,
  );
}
