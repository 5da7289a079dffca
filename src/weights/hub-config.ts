/**
 * What the environment says about the Hugging Face Hub, read as its own tools read it, so that a model fetched by
 * one is found by the other.
 */

import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { isOn } from '../env-flag.js';
import { KvantError } from '../errors.js';
import type { Environment } from './environment.js';
import { type ProxyFor, proxySettings } from './proxy-settings.js';

export interface HubConfig {
  /** Without a slash at the end. */
  readonly endpoint: string;
  /** The folder of `models--org--name` folders. */
  readonly cacheFolder: string;
  readonly token: string | undefined;
  readonly offline: boolean;
  /** By `HTTPS_PROXY` and the like; undefined where none is set. */
  readonly proxyFor: ProxyFor | undefined;
}

/**
 * - `HF_ENDPOINT`: default `https://huggingface.co`
 * - `HF_HUB_CACHE` (`HUGGINGFACE_HUB_CACHE`), else `HF_HOME/hub`, else `XDG_CACHE_HOME/huggingface/hub`, else
 *   `~/.cache/huggingface/hub`
 * - `HF_TOKEN` (`HUGGING_FACE_HUB_TOKEN`), else the file `HF_TOKEN_PATH` or `HF_HOME/token` that logging in writes,
 *   unless `HF_HUB_DISABLE_IMPLICIT_TOKEN` is set
 * - `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`: see proxy-settings.ts
 * - `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE`: 1, true, yes or on
 *
 * @throws KvantError `hub-endpoint` where HF_ENDPOINT is not an http(s) URL, `hub-token` where the token is none,
 * `proxy-invalid` where a variable names no proxy
 */
export async function hubConfig(env: Environment = process.env): Promise<HubConfig> {
  const cacheHome = value(env.XDG_CACHE_HOME) ?? join(homedir(), '.cache');
  const home = expand(value(env.HF_HOME)) ?? join(expand(cacheHome)!, 'huggingface');
  const cacheFolder =
    expand(value(env.HF_HUB_CACHE) ?? value(env.HUGGINGFACE_HUB_CACHE)) ?? join(home, 'hub');
  const endpoint = (value(env.HF_ENDPOINT) ?? 'https://huggingface.co').replace(/\/+$/, '');
  if (!/^https?:\/\/[^/]/.test(endpoint) || !URL.canParse(endpoint)) {
    throw new KvantError(
      'hub-endpoint',
      `HF_ENDPOINT is ${JSON.stringify(endpoint)}, which is not an address`,
      {
        kind: 'invalid-request',
        where: 'HF_ENDPOINT',
        fix: 'Set it to a URL such as https://huggingface.co, or unset it.',
      },
    );
  }
  let token = value(env.HF_TOKEN) ?? value(env.HUGGING_FACE_HUB_TOKEN);
  if (token === undefined && !isOn(env.HF_HUB_DISABLE_IMPLICIT_TOKEN)) {
    const path = expand(value(env.HF_TOKEN_PATH)) ?? join(home, 'token');
    token = value(await readFile(path, 'utf8').catch(() => undefined));
  }
  // As a header it could break the line, and the runtime's error would print it.
  token = value(token?.replace(/[\r\n]/g, ''));
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) {
    throw new KvantError('hub-token', 'the Hugging Face token holds characters that no token has', {
      kind: 'invalid-request',
      where: 'HF_TOKEN',
      fix: 'Set HF_TOKEN to the token as it was shown (it begins with hf_), or log in again; unset it for public models.',
    });
  }
  return {
    endpoint,
    cacheFolder,
    token,
    offline: isOn(env.HF_HUB_OFFLINE) || isOn(env.TRANSFORMERS_OFFLINE),
    proxyFor: proxySettings(env),
  };
}

function value(text: string | undefined): string | undefined {
  const trimmed = text?.trim();
  return trimmed === '' ? undefined : trimmed;
}

function expand(path: string | undefined): string | undefined {
  return path === undefined ? undefined : path.replace(/^~(?=$|[/\\])/, homedir());
}
