/** What a result was made with. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

export function kvantVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

/** kvant, Node, its engine, and the WebGPU binding where that is installed. */
export function versions(): Record<string, string> {
  const { node, v8 } = process.versions;
  return { kvant: kvantVersion(), node, v8, ...webgpuVersion() };
}

function webgpuVersion(): Record<string, string> {
  try {
    const { version } = createRequire(import.meta.url)('webgpu/package.json') as { version: string };
    return { webgpu: version };
  } catch {
    return {};
  }
}
