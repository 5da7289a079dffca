/** Before any test, the tiny checkpoints are unpacked: see scripts/fixtures/checkpoints.mjs. */
import { unpack } from '../../scripts/fixtures/checkpoints.mjs';

export default function setup(): void {
  unpack();
}
