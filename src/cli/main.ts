#!/usr/bin/env node
/** The `kvant` command. The engine's thread begins to load while the command line is still being read. */
import { startThreadEarly } from '../engine/thread.js';

const LOADING: readonly string[] = ['serve', 'chat', 'run', 'generate'];
const HELPING: readonly string[] = ['-h', '--help', 'help', '-V', '--version'];

const words = process.argv.slice(2);
if (LOADING.includes(words[0] ?? '') && !words.some((word) => HELPING.includes(word))) startThreadEarly();
await import('./program.js');
