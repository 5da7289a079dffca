// Compiles the CPU kernels: one AssemblyScript program, built three times: without relaxed SIMD, with it, and with it and
// int8 products added up in 32 bits.
// Only what changed is built again, and what was built once is kept in node_modules/.cache; files are written aside and
// renamed, so that builds may run side by side.
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { attendTiles } from './generate-attend.mjs';
import { kvFormats } from './generate-kv-formats.mjs';
import { matmulTiles } from './generate-matmul.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const cache = join(root, 'node_modules/.cache/kvant/wasm');
const KEPT_BUILDS = 20;
// Which kernels are built of what, for tests that add to them.
const { values: options } = parseArgs({
  options: {
    /** The assembly folder; beside it lie the files that it shares with TypeScript. */
    source: { type: 'string', default: join(root, 'src/device/cpu/assembly') },
    out: { type: 'string', default: join(root, 'dist/device/cpu/wasm') },
    /** A module that exports CPU_KV_CODECS. */
    formats: { type: 'string', default: join(root, 'dist/device/cpu/kv-formats/list.js') },
    /** One build alone. */
    only: { type: 'string' },
    /** Compile fast, not for speed. */
    quick: { type: 'boolean', default: false },
  },
});
const { source, out } = options;
const sharedMemory = [
  '--importMemory',
  '--sharedMemory',
  '--initialMemory',
  '1',
  '--maximumMemory',
  '65536',
  '--enable',
  'threads',
];
const common = [
  '--optimize',
  '--optimizeLevel',
  options.quick ? '1' : '3',
  '--shrinkLevel',
  '0',
  ...(options.quick ? [] : ['--converge']),
  '--noAssert',
  '--runtime',
  'stub',
  '--enable',
  'simd',
  '--enable',
  'bulk-memory',
  ...sharedMemory,
];
const allBuilds = [
  { name: 'kernels-simd', flags: ['--use', 'RELAXED=0', '--use', 'DOT=0'] },
  { name: 'kernels-relaxed', flags: ['--enable', 'relaxed-simd', '--use', 'RELAXED=1', '--use', 'DOT=0'] },
  { name: 'kernels-dot', flags: ['--enable', 'relaxed-simd', '--use', 'RELAXED=1', '--use', 'DOT=1'] },
];
const builds = allBuilds.filter(({ name }) => options.only === undefined || name === options.only);

const { CPU_KV_CODECS } = await import(pathToFileURL(options.formats));
const { codedKinds, packingsOf } = await import('../dist/device/cpu/kv-formats/list.js');
const generated = {
  'matmul-tiles.ts': matmulTiles,
  'attend-codes-tiles.ts': attendTiles(packingsOf(CPU_KV_CODECS)),
  'kv-formats.ts': kvFormats(codedKinds(CPU_KV_CODECS)),
};
for (const [name, text] of Object.entries(generated)) {
  const file = join(source, name);
  if ((await readFile(file, 'utf8').catch(() => '')) === text) continue;
  await writeFile(`${file}.${process.pid}`, text);
  await rename(`${file}.${process.pid}`, file);
}

const files = (await readdir(source)).filter((f) => f.endsWith('.ts')).sort();
const hash = createHash('sha256')
  .update(await readFile(fileURLToPath(import.meta.url)))
  .update(String(options.quick));
const shared = new Set();
for (const file of files) {
  const text = await readFile(join(source, file), 'utf8');
  hash.update(file).update(text);
  for (const [, name] of text.matchAll(/from '\.\.\/([\w-]+)'/g)) shared.add(`${name}.ts`);
}
// What the kernels share with TypeScript, such as places in memory.
for (const file of [...shared].sort()) hash.update(file).update(await readFile(join(source, '..', file)));
const stamp = hash.digest('hex');
await mkdir(out, { recursive: true });
const names = builds.map(({ name }) => `${name}.wasm`);
await build(out, stamp, names, async (asc, folder) => {
  for (const { name, flags } of builds)
    await compile(asc, join(source, 'index.ts'), join(folder, `${name}.wasm`), [...common, ...flags]);
});

// Small modules: the resize of images, and what loading does to weights. Packing works in the memories of the kernels.
await smallModule('src/media/assembly', 'resize.ts', 'dist/media/wasm/resize.wasm');
await smallModule('src/device/blocks/assembly', 'unpack.ts', 'dist/device/blocks/wasm/unpack.wasm');
await smallModule('src/device/cpu/pack-assembly', 'index.ts', 'dist/device/cpu/pack-wasm/pack.wasm', {
  more: [
    'src/device/cpu/pack-kinds.ts',
    ...['unpack', 'codes', 'subscales'].map((name) => `src/device/blocks/assembly/${name}.ts`),
  ],
  flags: sharedMemory,
});

/** `entry` of a folder, with what else it is made of. */
async function smallModule(folder, entry, to, { more = [], flags = [] } = {}) {
  const own = (await readdir(join(root, folder))).filter((f) => f.endsWith('.ts')).sort();
  const hash = createHash('sha256').update(await readFile(fileURLToPath(import.meta.url)));
  for (const file of [...own.map((name) => join(folder, name)), ...more])
    hash.update(file).update(await readFile(join(root, file)));
  const target = join(root, dirname(to));
  await mkdir(target, { recursive: true });
  const name = basename(to);
  await build(target, hash.digest('hex'), [name], (asc, aside) =>
    compile(asc, join(root, folder, entry), join(aside, name), [
      '--optimizeLevel',
      '3',
      '--noAssert',
      '--runtime',
      'stub',
      '--enable',
      'simd',
      '--enable',
      'bulk-memory',
      ...flags,
    ]),
  );
}

/** Makes `names` in `folder` by `make(asc, folder)`, or takes them from the cache, which knows builds by their stamp. */
async function build(folder, stamp, names, make) {
  // With the names: one build alone leaves the others as old as they were.
  const mark = `${stamp} ${names.join()}`;
  const previous = await readFile(join(folder, 'stamp'), 'utf8').catch(() => '');
  if (previous === mark && names.every((name) => existsSync(join(folder, name)))) return;
  const cached = join(cache, createHash('sha256').update(mark).digest('hex'));
  if (!existsSync(cached)) {
    const aside = `${cached}.${process.pid}`;
    await mkdir(aside, { recursive: true });
    await make(await import('assemblyscript/asc'), aside);
    // Another build may have been faster: its files are the same.
    await rename(aside, cached).catch(() => rm(aside, { recursive: true }));
    await forgetOld();
  }
  for (const name of names) {
    const aside = join(folder, `${name}.${process.pid}`);
    await copyFile(join(cached, name), aside);
    await rename(aside, join(folder, name));
  }
  await writeFile(join(folder, `stamp.${process.pid}`), mark);
  await rename(join(folder, `stamp.${process.pid}`), join(folder, 'stamp'));
}

async function compile(asc, from, to, flags) {
  const { error, stderr } = await asc.main([from, '--outFile', to, ...flags]);
  if (!error) return;
  process.stderr.write(stderr.toString());
  throw error;
}

/** Leaves the newest builds. */
async function forgetOld() {
  const folders = await Promise.all(
    (await readdir(cache)).map(async (name) => ({ name, at: (await stat(join(cache, name))).mtimeMs })),
  );
  for (const { name } of folders.sort((a, b) => b.at - a.at).slice(KEPT_BUILDS))
    await rm(join(cache, name), { recursive: true, force: true });
}
