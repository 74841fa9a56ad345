// Logs in at a gateway with no help, with the TypeScript SDK 1.x or 2.x.
//
//     node login_ts.mjs v1|v2-legacy|v2-modern URL STEP...
//
// Connects, lists, and takes each step: the name of a tool calls it, `wait:MS` waits, and
// `forget-refresh` drops the refresh token, and `revoke` revokes it. Prints one line of JSON for each
// call.
import { follow } from './follower.mjs';

const [version, url, ...steps] = process.argv.slice(2);
const sdk =
  version === 'v1'
    ? {
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
        ...(await import('@modelcontextprotocol/sdk/client/auth.js')),
      }
    : await import('@modelcontextprotocol/client');

const CALLBACK = 'http://127.0.0.1:1/callback';

/** What an application keeps of its logins. */
class Memory {
  get redirectUrl() {
    return CALLBACK;
  }
  get clientMetadata() {
    return {
      client_name: 'a test',
      redirect_uris: [CALLBACK],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      application_type: 'native',
    };
  }
  clientInformation() {
    return this.client;
  }
  saveClientInformation(client) {
    this.client = client;
  }
  tokens() {
    return this.held;
  }
  saveTokens(tokens) {
    this.held = tokens;
  }
  invalidateCredentials(what) {
    if (what === 'all' || what === 'tokens') delete this.held;
    if (what === 'all' || what === 'client') delete this.client;
  }
  /** Revokes the refresh token, as a user does who signs out elsewhere. */
  async revoke() {
    const form = { token: this.held.refresh_token, client_id: this.client.client_id };
    const revocation = new URL('/token/revocation', this.issuer);
    const response = await fetch(revocation, { method: 'POST', body: new URLSearchParams(form) });
    if (!response.ok) throw new Error(`revocation: ${response.status}`);
  }
  async redirectToAuthorization(to) {
    this.issuer = new URL(to).origin;
    this.asked = (this.asked ?? []).concat([new URL(to).searchParams.get('scope')]);
    // A stream and a call may both ask: an answer is used with the verifier of its own question.
    const verifier = this.askedWith;
    const answer = await follow(to, CALLBACK);
    Object.assign(this, { answer, verifier });
  }
  saveCodeVerifier(verifier) {
    this.askedWith = verifier;
  }
  codeVerifier() {
    return this.verifier;
  }
}

const memory = new Memory();
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const transportOf = () => new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider: memory });
let transport = transportOf();
const mode = version === 'v2-modern' ? { pin: '2026-07-28' } : 'legacy';
const client = new sdk.Client(
  { name: 'a-test', version: '1' },
  version === 'v1' ? { capabilities: {} } : { capabilities: {}, versionNegotiation: { mode } },
);

/** What every application does: when the user has to log in, it finishes that and tries again. */
async function authorized(act, again = () => {}) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await act();
    } catch (error) {
      const isAuth = error instanceof sdk.UnauthorizedError || error?.constructor?.name === 'UnauthorizedError';
      if (!isAuth || attempt === 3) throw error;
      const answer = memory.answer;
      await (transport.finishAuth.length > 1
        ? transport.finishAuth(answer.get('code'), answer.get('iss') ?? undefined)
        : transport.finishAuth(answer.get('code')));
      await again();
    }
  }
}

try {
  await authorized(
    () => client.connect(transport),
    async () => {
      transport = transportOf();
    },
  );
  const { tools } = await authorized(() => client.listTools());
  print({ tools: tools.map((tool) => tool.name) });
  for (const step of steps) {
    if (step.startsWith('wait:')) {
      await new Promise((over) => setTimeout(over, Number(step.slice(5))));
    } else if (step === 'forget-refresh') {
      delete memory.held.refresh_token;
    } else if (step === 'revoke') {
      await memory.revoke();
    } else {
      const result = await authorized(() => client.callTool({ name: step, arguments: {} }));
      print({ called: step, text: result.content[0].text, isError: result.isError ?? false });
    }
  }
  print({ asked: memory.asked, session: transport.sessionId ?? null });
} catch (error) {
  print({ error: `${error?.stack ?? error}` });
}
process.exit(0);
