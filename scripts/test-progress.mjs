// A reporter of vitest's: one line of JSON an event into the file that KVANT_TEST_PROGRESS names, written at once, so
// that what ran is known of a run that hung or died as well. scripts/test.mjs reads it.
import { appendFileSync } from 'node:fs';

export default class TestProgress {
  #path = process.env.KVANT_TEST_PROGRESS;

  onTestRunStart(specifications) {
    this.#write({ event: 'run', files: specifications.map((one) => one.moduleId) });
  }

  onTestModuleStart(module) {
    this.#write({ event: 'start', file: module.moduleId });
  }

  onTestCaseReady(test) {
    this.#write({ event: 'ready', file: test.module.moduleId, name: test.fullName });
  }

  onTestCaseResult(test) {
    const { state } = test.result();
    this.#write({ event: 'case', file: test.module.moduleId, name: test.fullName, state });
  }

  onTestModuleEnd(module) {
    this.#write({
      event: 'end',
      file: module.moduleId,
      seconds: Number((module.diagnostic().duration / 1000).toFixed(1)),
      errors: module.errors().map((error) => error.message),
      tests: [...module.children.allTests()].map((test) => ({
        name: test.fullName,
        state: test.result().state,
      })),
    });
  }

  onTestRunEnd(_modules, unhandled) {
    this.#write({ event: 'done', unhandled: unhandled.map((error) => error.message) });
  }

  #write(event) {
    if (this.#path !== undefined)
      appendFileSync(this.#path, `${JSON.stringify({ at: Date.now(), ...event })}\n`);
  }
}
