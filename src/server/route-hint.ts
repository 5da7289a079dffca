/** What to ask for in place of a path that is not there: a base URL that is not quite right, or another server's route. */

const VERSION = '/v1';

/** `routes`: each path with its methods. A sentence; the list of routes where nothing is nearer. */
export function routeHint(path: string, routes: ReadonlyMap<string, string>): string {
  const plain = `/${path.split('/').filter(Boolean).join('/')}`;
  const methods = routes.get(plain);
  if (methods !== undefined) return `Did you mean ${methods} ${plain}?`;
  // `/chat/completions`, `/v1/v1/chat/completions`, `/openai/v1/chat/completions`; the longest: `/chat/completions` ends so too.
  const [near] = [...routes]
    .filter(([route]) => route.startsWith(`${VERSION}/`) && plain.endsWith(route.slice(VERSION.length)))
    .sort(([a], [b]) => b.length - a.length);
  if (near !== undefined)
    return `Did you mean ${near[1]} ${near[0]}? The base URL of a client ends in ${VERSION}.`;
  for (const [theirs, instead] of ELSEWHERE) if (theirs.test(plain)) return instead;
  return `Routes: ${[...routes].map(([route, its]) => `${its} ${route}`).join(', ')}.`;
}

/** Routes of other servers, and of OpenAI's that are not here. */
const ELSEWHERE: readonly (readonly [RegExp, string])[] = [
  [
    /^(\/v1)?\/(responses|conversations)(\/|$)/,
    'Use POST /v1/chat/completions: OpenAI’s responses are not served. In the openai package that is `client.chat.completions`, in the AI SDK `openai.chat(model)` or @ai-sdk/openai-compatible, in LangChain `useResponsesApi: false`.',
  ],
  [
    /^(\/v1)?\/(messages|complete)(\/|$)/,
    'Use POST /v1/chat/completions, with a client for OpenAI: Anthropic’s messages are not served.',
  ],
  [
    /^\/api\/(chat|generate)$|^\/(completion|infill)$/,
    'Use POST /v1/chat/completions, or POST /v1/completions for a prompt as it stands: of client libraries the chat completions of OpenAI.',
  ],
  [
    /^(\/v1|\/api)?\/(embed|embeddings?|rerank|score)$/,
    'Vectors are not served over HTTP: use `engine.embed` and `engine.rerank` of the library, or `kvant embed`.',
  ],
  [/^\/api\/(tags|show|ps|version)$|^\/props$/, 'Use GET /v1/models.'],
];
