/**
 * The HTTP application: `Request → Response`, with no socket in sight, so that every route can be tried with
 * `app.request()`.
 */
import type { Socket } from 'node:net';
import { type Context, Hono, type MiddlewareHandler } from 'hono';
import { cors } from 'hono/cors';
import { pino } from 'pino';
import { PRIORITY_RANGE } from '../engine/request-check.js';
import { KvantError } from '../errors.js';
import { printable, shown } from '../printable.js';
import type { AnswerContext } from './answer-context.js';
import { answerRequest } from './answer-request.js';
import { ApiKeys, type KeyHolder, notAdmin, wrongKey } from './api-keys.js';
import { servedName } from './asked.js';
import { BodiesInFlight } from './bodies-in-flight.js';
import { cacheBody } from './cache-format.js';
import type { Caller } from './caller.js';
import { addressGroup } from './connections.js';
import type { EnginePort } from './engine-port.js';
import { errorResponse } from './error-answers.js';
import { asKvantError, statusOf } from './http-errors.js';
import { ServerMetrics } from './metrics.js';
import { PageGuard } from './page-guard.js';
import type { Endpoint } from './protocol.js';
import { PROTOCOLS, protocolAt } from './protocols.js';
import { REQUEST_ID, RequestId } from './request-id.js';
import { RequestObserver } from './request-observer.js';
import { routeHint } from './route-hint.js';
import { type AppOptions, checkAppOptions } from './server-options.js';
import { Shutdown } from './shutdown.js';

/** What is known of a request when its route is reached. */
export interface AppVariables {
  Variables: { key?: KeyHolder; requestId: RequestId };
}

/** The methods of each path. */
const routesOf = (endpoints: readonly Endpoint[]): ReadonlyMap<string, string> =>
  new Map([
    ['/health', 'GET'],
    ['/metrics', 'GET'],
    ['/v1/models', 'GET'],
    ['/v1/cache', 'GET, DELETE'],
    ...endpoints.map(({ path }) => [path, 'POST'] as const),
  ]);

/**
 * Errors: `unknown-option`, `invalid-option`, naming it.
 *
 * @example
 * const app = createApp({ engine });
 * const response = await app.request('/v1/models');
 */
export function createApp(options: AppOptions): Hono<AppVariables> {
  checkAppOptions(options);
  const { engine, log = pino({ level: 'silent' }) } = options;
  const metrics = new ServerMetrics(engine.info.memory);
  const bodyLimit =
    options.bodyLimit ?? defaultBodyLimit(engine.info.limits.maxContext, engine.info.model.modalities);
  const context: AnswerContext = {
    engine,
    keepAliveMs: options.keepAliveMs ?? 10_000,
    bodyLimit,
    bodies: new BodiesInFlight(options.bodyMemory ?? Math.max(BODY_MEMORY, 2 * bodyLimit)),
    reasoningFormat: options.reasoningFormat ?? 'auto',
    shutdown: options.shutdown ?? new Shutdown(),
    rules: {
      maxPriority: options.maxPriority ?? PRIORITY_RANGE,
      prefixCacheShared: options.prefixCacheShared ?? false,
    },
    observe: (route, key, id) => new RequestObserver(route, key, id, log, metrics),
  };
  const created = Math.floor(Date.now() / 1000);
  const app = new Hono<AppVariables>();
  /** An error that no completion request's record tells of. */
  const refuse = (c: Context<AppVariables>, error: KvantError): Response => {
    const status = protocolAt(c.req.path).errorStatus?.(error) ?? statusOf(error);
    const key = c.get('key')?.name;
    const { fields: id } = c.get('requestId');
    const fields = { ...id, key, method: c.req.method, path: shown(c.req.path), status, code: error.code };
    // A browser keeps the answer from the page: whoever runs the server has to read what would allow it.
    if (status === 403) Object.assign(fields, { fix: error.fix });
    log.info(fields, printable(error.message));
    return errorResponse(error, c.req.path);
  };

  app.use(async (c, next) => {
    const requestId = new RequestId(c.req.header(REQUEST_ID));
    c.set('requestId', requestId);
    await next();
    c.res.headers.set(REQUEST_ID, `${requestId}`);
    // A client must not wait for its next answer on a connection that is about to close.
    if (context.shutdown.draining) c.header('connection', 'close');
  });
  const keys = apiKeys(options);
  const origins = [options.corsOrigin ?? []].flat();
  const guard = new PageGuard({
    origins,
    hosts: options.allowedHosts ?? [],
    hasKey: keys !== null && !keys.anonymous,
    ...(options.address === undefined ? {} : { address: options.address }),
  });
  app.use(async (c, next) => {
    try {
      guard.check(c.req.raw);
    } catch (error) {
      return refuse(c, asKvantError(error));
    }
    // A browser that is about to go from the open web to a local network asks first.
    if (c.req.header('access-control-request-private-network') === 'true' && origins.length > 0)
      c.res.headers.set('access-control-allow-private-network', 'true');
    return next();
  });
  if (origins.length > 0)
    app.use(
      cors({ origin: (origin) => guard.corsOrigin(origin), exposeHeaders: [REQUEST_ID, 'retry-after'] }),
    );
  app.get('/health', async () => {
    const fault = await engine.stats().then(
      (stats) => stats.fault,
      (error: unknown) => asKvantError(error),
    );
    const { info } = engine;
    if (fault !== undefined)
      return Response.json({ status: 'failed', code: fault.code, message: fault.message }, { status: 503 });
    if (context.shutdown.draining)
      return Response.json({ status: 'stopping', model: info.name }, { status: 503 });
    return Response.json({ status: 'ok', model: info.name, device: info.device.name });
  });

  if (keys !== null)
    app.use(async (c, next) => {
      const { keyHeader } = protocolAt(c.req.path);
      const other = keyHeader === undefined ? undefined : c.req.header(keyHeader);
      const holder = keys.holderOf(other === undefined ? c.req.header('authorization') : `Bearer ${other}`);
      if (holder !== undefined) c.set('key', holder);
      else if (!keys.anonymous) return refuse(c, wrongKey());
      return next();
    });
  /** Lets admins pass, and everybody where there are no keys. */
  const admin: MiddlewareHandler<AppVariables> = async (c, next) => {
    const key = c.get('key');
    if (keys === null || key?.admin === true) return next();
    return refuse(c, key === undefined ? wrongKey() : notAdmin(`${c.req.method} ${c.req.path}`));
  };
  const callerOf = (c: Context<AppVariables>): Caller => {
    const key = c.get('key');
    const priority = c.req.header('x-priority');
    return {
      address: addressOf(c.env),
      ...(key === undefined ? {} : { key }),
      ...(priority === undefined ? {} : { priority }),
    };
  };

  app.get('/metrics', admin, async () => {
    const text = await metrics.render(await engine.stats());
    return new Response(text, { headers: { 'content-type': metrics.registry.contentType } });
  });
  app.get('/v1/models', () => Response.json({ object: 'list', data: [modelBody(engine, created)] }));
  app.get('/v1/models/:id{.+}', (c) => {
    servedName(engine.info.name, c.req.param('id'));
    return Response.json(modelBody(engine, created));
  });
  app.get('/v1/cache', admin, async () => Response.json(cacheBody(engine, await engine.stats())));
  app.delete('/v1/cache', admin, async () =>
    Response.json(cacheBody(engine, await engine.clearPrefixCache())),
  );
  for (const protocol of PROTOCOLS)
    for (const endpoint of protocol.endpoints)
      app.post(endpoint.path, (c) =>
        answerRequest(context, protocol, endpoint, c.req.raw, callerOf(c), c.get('requestId')),
      );
  const routes = routesOf(PROTOCOLS.flatMap(({ endpoints }) => endpoints));

  app.notFound((c) => {
    const { path, method } = c.req;
    const allowed = routes.get(path);
    if (allowed !== undefined) {
      const response = refuse(
        c,
        new KvantError('method-not-allowed', `${path} does not take ${shown(method)}.`, {
          kind: 'invalid-request',
          fix: `Use ${allowed}.`,
        }),
      );
      response.headers.set('allow', allowed);
      return response;
    }
    return refuse(
      c,
      new KvantError('route-not-found', `There is no ${shown(method)} ${shown(path)}.`, {
        kind: 'not-found',
        fix: routeHint(path, routes),
      }),
    );
  });
  app.onError((error, c) => {
    const known = asKvantError(error);
    if (known.cause !== undefined && known.code === 'internal')
      log.error({ ...c.get('requestId').fields, err: known.cause }, 'unexpected error');
    return errorResponse(known, c.req.path);
  });
  return app;
}

/** Null where there are none. */
function apiKeys({ apiKey, adminKey, maxPriority }: AppOptions): ApiKeys | null {
  if (apiKey instanceof ApiKeys) return apiKey;
  if (apiKey === undefined && adminKey === undefined) return null;
  const admins = [adminKey ?? []].flat().map((key) => ({ key, admin: true }));
  const keys = apiKey === undefined ? [] : [apiKey].flat();
  return new ApiKeys([...keys, ...admins], {
    anonymous: apiKey === undefined,
    ...(maxPriority === undefined ? {} : { maxPriority }),
  });
}

const BODY_MEMORY = 2 ** 25;

/** Where a request comes from; nothing without a socket. */
function addressOf(env: unknown): string {
  const { incoming } = (env ?? {}) as { readonly incoming?: { readonly socket?: Socket } };
  return addressGroup(incoming?.socket?.remoteAddress);
}

/** Far more than a context of text takes: what is larger would be refused anyway, after much work. */
const defaultBodyLimit = (maxContext: number, modalities: readonly string[]): number =>
  modalities.includes('image') ? PICTURES_BODY : Math.min(Math.max(64 * maxContext, 2 ** 20), 2 ** 24);

/** Of a model that sees: pictures come in base64. */
const PICTURES_BODY = 2 ** 26;

function modelBody(engine: EnginePort, created: number): object {
  const { info } = engine;
  return {
    id: info.name,
    object: 'model',
    created,
    owned_by: 'kvant',
    max_model_len: info.limits.maxContext,
    kvant: {
      architecture: info.model.architecture,
      device: info.device.name,
      tuning: info.tuning,
      weight_bytes: info.model.weightBytes,
      kv: {
        bytes_per_token: info.kv.bytesPerToken,
        blocks: info.kv.blocks,
        block_tokens: info.kv.blockTokens,
        calibration: info.kv.calibration,
        floatStart: info.kv.floatStart,
        float_head: info.kv.groups.find(({ head }) => head !== undefined)?.head ?? 0,
        float_tail: info.kv.groups.find(({ tail }) => tail)?.window ?? 0,
        layers: info.kv.layers.map(({ keyBytes, valueBytes, stateBytes, ...layer }) => ({
          ...layer,
          key_bytes: keyBytes,
          value_bytes: valueBytes,
          ...(stateBytes === undefined ? {} : { state_bytes: stateBytes }),
        })),
      },
      limits: info.limits,
      tool_format: info.model.toolFormat,
      sampling_defaults: info.samplingDefaults,
    },
  };
}
