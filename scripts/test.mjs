// Runs every suite, or those named: `npm test -- unit devices-cpu`. Prints each suite's time, and the sum of all
// tests as `N passed, N failed` alone on the last line, after the files that took longest. Nothing is skipped: what a suite needs and does not find
// is installed (Debian's chromium, for SwiftShader) or is a failure.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runSuite } from './run-suite.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const swiftshader = '/usr/lib/chromium/vk_swiftshader_icd.json';

/**
 * Two suites run side by side, each with one file at a time, so that neither of a machine's two processors waits for the
 * last file of a suite. Suites are listed with the longest first: the short ones fill up the end. `workers`: files at
 * once where a suite is alone; one where tests wait for a time. A GPU leaves the processor the checks in float64, so both
 * suites take more files at once there than on SwiftShader, which is the processor. `shared`: one process runs file after file
 * and loads the source once, which takes 1.4 s of a processor; test/devices compiles what files have in common once as well. Not on a
 * GPU, which may take its process along. SwiftShader may too: then each file that is left gets a process (run-suite.mjs).
 */
const onGpu = process.env.KVANT_TEST_GPU === '1';
const gpuWorkers = onGpu ? Math.max(2, Math.min(8, availableParallelism() >> 1)) : 2;
/** Every family on every device. */
const FAMILY_FILES = ['devices', 'family-runs'].map((name) => `test/parity/${name}.test.ts`);
const engine = ofFolders('test/engine/');
const parity = ofFolders('test/parity/', 'test/embeddings/');
const webgpuTexts = opensNothing('src/device/webgpu/');
const suites = {
  'devices-webgpu': {
    paths: ['test/devices/'],
    env: { KVANT_TEST_DEVICES: 'webgpu' },
    workers: gpuWorkers,
    webgpu: true,
    shared: !onGpu,
  },
  'webgpu-kernels': {
    paths: ['test/webgpu/'],
    env: { KVANT_TEST_DEVICES: 'webgpu' },
    workers: gpuWorkers,
    webgpu: true,
  },
  'unit-devices': {
    paths: ['src/device/cpu/', 'src/device/webgpu/'],
    exclude: webgpuTexts,
    workers: 2,
    webgpu: true,
  },
  engine: { paths: engine.folders, exclude: engine.apart, workers: 1, shared: true },
  'engine-apart': { paths: engine.apart, workers: 1, webgpu: true },
  'parity-apart': {
    paths: parity.apart.filter((path) => !FAMILY_FILES.includes(path)),
    workers: 2,
    webgpu: true,
  },
  'parity-devices': { paths: FAMILY_FILES, workers: gpuWorkers, webgpu: true },
  'devices-cpu': { paths: ['test/devices/'], env: { KVANT_TEST_DEVICES: 'cpu' }, workers: 2, shared: true },
  questions: { paths: ['test/questions/'], workers: 2 },
  cli: { paths: ['test/cli/'], workers: 1 },
  parity: { paths: parity.folders, exclude: parity.apart, workers: 2, shared: true },
  'unit-webgpu-texts': { paths: webgpuTexts, workers: 2, shared: true },
  unit: { paths: ['src/'], exclude: ['src/device/cpu/**', 'src/device/webgpu/**'], workers: 2, shared: true },
  soak: { paths: ['test/soak/'], workers: 1, webgpu: true },
  server: { paths: ['test/server/'], workers: 1, shared: true },
  package: { paths: ['test/package/'], workers: 1 },
};

const wanted = process.argv.slice(2);
for (const name of wanted) {
  if (!(name in suites)) {
    giveUp(`There is no suite "${name}". Suites: ${Object.keys(suites).join(', ')}.`, 2);
  }
}
const chosen = Object.entries(suites).filter(([name]) => wanted.length === 0 || wanted.includes(name));

if (chosen.some(([, suite]) => suite.webgpu) && !onGpu) installSwiftShader();
if (!existsSync(join(root, 'dist'))) {
  const build = spawnSync('npm', ['run', '-s', 'build'], { cwd: root, stdio: 'inherit' });
  if (build.status !== 0) giveUp('The build failed, so nothing could be tested.', 1);
}

const scratch = mkdtempSync(join(tmpdir(), 'kvant-test-'));
const rows = [];
let passed = 0;
let failed = 0;
const complaints = [];
const files = [];
const abreast = Math.min(2, chosen.length);
const queue = [...chosen];
/** The first suite builds what is older than its source, for all: the others take it as it is. */
let isBuilt = false;
let built = () => {};
const ready = new Promise((resolve) => {
  built = () => {
    isBuilt = true;
    resolve();
  };
});

async function runQueue() {
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const [name, suite] = next;
    const started = performance.now();
    const env = isBuilt ? { ...suite.env, KVANT_PREBUILT: '1' } : suite.env;
    const workers = abreast > 1 && !onGpu ? 1 : suite.workers;
    const how = { ...suite, env, workers, byLines: abreast > 1 };
    const run = await runSuite(name, how, join(scratch, `${name}.jsonl`), built);
    built();
    passed += run.passed;
    failed += run.complaints.length;
    complaints.push(...run.complaints.map((what) => `${name}: ${what}`));
    files.push(...run.files.map((file) => ({ suite: name, ...file })));
    const seconds = Number(((performance.now() - started) / 1000).toFixed(1));
    rows.push({ suite: name, passed: run.passed, failed: run.complaints.length, seconds });
  }
}
const first = runQueue();
await ready;
await Promise.all([first, ...Array.from({ length: abreast - 1 }, runQueue)]);
rmSync(scratch, { recursive: true, force: true });
console.log('The files that took longest:');
console.table(files.sort((a, b) => b.seconds - a.seconds).slice(0, 10));
console.table(rows);
// Once more at the end: whoever reads a log from its tail finds what is wrong.
for (const what of complaints) console.log(what);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

/** `apart`: those files of the folders that cannot share a process: they open the devices under test, or put a module in another's place. */
function ofFolders(...folders) {
  const files = folders.flatMap((folder) =>
    existsSync(join(root, folder)) ? readdirSync(join(root, folder)).map((name) => folder + name) : [],
  );
  const reason = /from '.*\/(devices\/devices|setup\/swiftshader|device\/webgpu\/.*)\.js'|\bvi\.mock\(/;
  const apart = files.filter(
    (path) => path.endsWith('.test.ts') && reason.test(readFileSync(join(root, path), 'utf8')),
  );
  return { folders, apart };
}

/** Those files below a folder that look at texts and choices alone, and leave the process as it was. */
function opensNothing(folder) {
  const reason = /swiftshader|dawn|createNodeGpu|\bvi\.|process\.env|globalThis/;
  const names = existsSync(join(root, folder)) ? readdirSync(join(root, folder), { recursive: true }) : [];
  return names
    .map((name) => folder + name)
    .filter((path) => path.endsWith('.test.ts') && !reason.test(readFileSync(join(root, path), 'utf8')));
}

/** WebGPU without a GPU runs on SwiftShader, which comes with Debian's chromium. */
function installSwiftShader() {
  if (existsSync(swiftshader)) return;
  const help = `The WebGPU suites need ${swiftshader}: install Debian's package "chromium" (apt-get install chromium), or set KVANT_TEST_GPU=1 on a machine with a GPU.`;
  if (process.platform !== 'linux' || process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) {
    giveUp(help, 1);
  }
  console.log('Installing chromium for SwiftShader …');
  spawnSync('apt-get', ['update', '-q'], { stdio: 'ignore' });
  const install = spawnSync('apt-get', ['install', '-y', '-q', '--no-install-recommends', 'chromium'], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  });
  if (install.status !== 0 || !existsSync(swiftshader)) giveUp(help, 1);
}

/** Nothing was tested: that is a failure, said on the last line like any other. */
function giveUp(why, code) {
  console.error(why);
  console.log('0 passed, 1 failed');
  process.exit(code);
}
