//! The rules for one server.

/// Every rule: the lines of `[servers.x]` that violate it, and the start of the report.
pub(super) const RULES: &[(&str, &str)] = &[
    (
        "url = \"http://x\"\noauth = { client_secret = \"s\" }",
        "3: servers.x.oauth.client_secret: the setting belongs to a registered client, but there is no `client_id`; add the client_id, or remove the setting",
    ),
    (
        "url = \"http://x\"\noauth = { private_key = \"s\" }",
        "3: servers.x.oauth.private_key: the setting belongs to a registered client, but there is no `client_id`; add the client_id, or remove the setting",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"client_credentials\", client_id = \"c\" }",
        "3: servers.x.oauth.grant: the grant `client_credentials` needs `client_id`, and `client_secret` or `private_key`; add them",
    ),
    (
        "url = \"http://x\"\noauth = { token_endpoint_auth = \"private_key_jwt\", client_id = \"c\" }",
        "3: servers.x.oauth.token_endpoint_auth: this authentication method needs `private_key`; add it, or write token_endpoint_auth = \"auto\"",
    ),
    (
        "url = \"http://x\"\nisolation = \"shared\"\noauth = {}",
        "3: servers.x.isolation: with `per = \"user\"` each client of a Legacy server needs a session of its own; write isolation = \"client\" for the server, or per = \"gateway\" in this table",
    ),
    (
        "url = \"http://x\"\nheaders = { Authorization = \"Bearer x\" }\noauth = {}",
        "3: servers.x.headers.Authorization: the server has both OAuth and a fixed `Authorization` header; keep one of them",
    ),
    (
        "url = \"http://x\"\noauth = { scopes = [\"a b\"] }",
        "3: servers.x.oauth.scopes[0]: \"a b\" is not a scope; write visible ASCII characters without spaces, `\"` and `\\`, such as \"repo:read\"",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${claim:sub}\" }",
        "3: servers.x.headers.A: `${header:…}` and `${claim:…}` have no value here; they work in `call_headers` of a server; a text of an argument may have ${header:NAME}",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${command:/no/such/program --key s3cret}\" }",
        "3: servers.x.headers.A: the command `/no/such/program` fails: No such file or directory; run it by hand, as the user and with the environment of the gateway",
    ),
    (
        "url = \"http://x\"\ncall_headers = { A = \"b\" }",
        "3: servers.x.call_headers.A: the value is the same for every call; write it in `headers`, or use ${header:NAME} or ${claim:NAME}",
    ),
    (
        "url = \"http://x\"\ncall_headers = { A = \"${claim:}\" }",
        "3: servers.x.call_headers.A: unknown substitution after `${`, expected `env:`, `file:` or `command:`; write ${env:NAME}, ${file:PATH} or ${command:PROGRAM ARG…}; a plain ${ is written $${",
    ),
    (
        "url = \"http://x\"\ncall_headers = { Mcp-Name = \"${claim:sub}\" }",
        "3: servers.x.call_headers.Mcp-Name: this header cannot be configured: headers that begin with Mcp- are reserved for the protocol; remove it",
    ),
    (
        "url = \"http://x\"\ncall_headers = { A = \"${header:X-API-Key}\" }",
        "3: servers.x.call_headers.A: this header carries client keys, which are never forwarded; remove it",
    ),
    (
        "url = \"http://x\"\ncall_headers = { A = \"${claim:sub}\" }\nheaders = { a = \"1\" }",
        "3: servers.x.call_headers.A: `headers` contains this header too; keep one of them",
    ),
    (
        "url = \"http://x\"\ncall_headers = { A = \"${claim:sub}\" }\nforward_headers = [\"a\"]",
        "3: servers.x.call_headers.A: `forward_headers` contains this header too; keep one of them",
    ),
    (
        "url = \"http://x\"\noauth = {}\ncall_headers = { Authorization = \"Bearer ${header:X-Token}\" }",
        "4: servers.x.call_headers.Authorization: the server has both OAuth and a fixed `Authorization` header; keep one of them",
    ),
    (
        "command = \"x\"\ncall_headers = { A = \"${claim:sub}\" }",
        "3: servers.x.call_headers: this setting is only for servers with `url`; remove it, or use the other kind of server",
    ),
    (
        "url = \"http://x\"\noauth = { allow_addresses = [\"10.0.0.0/33\"] }",
        "3: servers.x.oauth.allow_addresses[0]: \"10.0.0.0/33\" is not an address range; write an IP address, or a range of them as `ADDRESS/BITS`, such as \"10.1.0.0/16\"",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"token_exchange\", client_id = \"c\" }",
        "3: servers.x.oauth.grant: the grant `token_exchange` needs `client_id` and `issuer`; add them",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"id_jag\", client_id = \"c\" }",
        "3: servers.x.oauth.grant: the grant `id_jag` needs `client_id` and the table `idp`; add them",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"jwt_bearer\" }",
        "3: servers.x.oauth.grant: the grant `jwt_bearer` needs `assertion` or `assertion_file`; add them",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"id_jag\", per = \"gateway\", client_id = \"c\", idp = { token_endpoint = \"https://i/t\", client_id = \"d\" } }",
        "3: servers.x.oauth.grant: the grant `id_jag` needs `subject_token` or `subject_token_file` for `per = \"gateway\"`; add them",
    ),
    (
        "url = \"http://x\"\noauth = { assertion = \"a.b.c\" }",
        "3: servers.x.oauth.assertion: this setting is only for the grant `jwt_bearer`; remove it, or choose that grant",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"jwt_bearer\", assertion = \"a.b.c\", assertion_file = \"/f\" }",
        "3: servers.x.oauth.assertion_file: the token is here and in a file; keep one of them",
    ),
    (
        "url = \"http://x\"\noauth = { grant = \"token_exchange\", client_id = \"c\", issuer = \"https://i\", subject_issuer = \"none\" }",
        "3: servers.x.oauth.subject_issuer: there is no issuer of this name; write the NAME of a table [issuers.NAME]",
    ),
    (
        "url = \"http://x\"\noauth = {}\naws = { region = \"r\", service = \"s\", access_key_id = \"i\", secret_access_key = \"k\" }",
        "4: servers.x.aws: the server has both OAuth and signatures for AWS; keep one of them",
    ),
    (
        "command = \"x\"\noauth = {}",
        "3: servers.x.oauth: this setting is only for servers with `url`; remove it, or use the other kind of server",
    ),
    (
        "openapi = \"x.json\"\nurl = \"http://x\"",
        "2: servers.x.openapi: the server has more than one of `command`, `url` and `openapi`; keep one of them, or configure two servers",
    ),
    (
        "openapi = \"https://x/openapi.json\"\nera = \"legacy\"",
        "3: servers.x.era: this setting is only for servers that speak MCP; remove it, or use the other kind of server",
    ),
    (
        "openapi = \"x.json\"\ntransport = \"sse\"",
        "3: servers.x.transport: this setting is only for servers with `url`; remove it, or use the other kind of server",
    ),
    (
        "url = \"http://x\"\ninclude = []",
        "3: servers.x.include: this setting is only for servers with `openapi`; remove it, or use the other kind of server",
    ),
    (
        "command = \"x\"\nkind = \"openapi\"",
        "3: servers.x.kind: this setting is only for servers with `openapi`; remove it, or use the other kind of server",
    ),
    (
        "openapi = \"x.json\"\ninclude = [\"get /x\"]",
        "3: servers.x.include[0]: \"get /x\" is not an operation; write an operationId, \"METHOD /path\", \"tag:NAME\", or a table",
    ),
    (
        "openapi = \"x.json\"\nauth = { key = \"a\\nb\" }",
        "3: servers.x.auth.key: the header value contains a character that is not allowed in headers; headers are one line",
    ),
    (
        "command = \"x\"\nurl = \"http://x\"",
        "3: servers.x.url: the server has more than one of `command`, `url` and `openapi`; keep one of them, or configure two servers",
    ),
    (
        "command = \"x\"\nheaders = {}",
        "3: servers.x.headers: this setting is only for servers with `url`; remove it, or use the other kind of server",
    ),
    (
        "url = \"http://x\"\nargs = []",
        "3: servers.x.args: this setting is only for servers with `command`; remove it, or use the other kind of server",
    ),
    (
        "command = \"x\"\nargs = [\n\"a\",\n1]",
        "5: servers.x.args[1]: expected text, found an integer; write it in quotes; ${env:NAME} and ${file:PATH} work in them",
    ),
    (
        "command = \"x\"\nenv = { \"A=B\" = \"\" }",
        "3: servers.x.env.\"A=B\": not the name of an environment variable; write a name such as LOG_LEVEL",
    ),
    (
        "command = \"x\"\nenv = { A = \"a\\u0000\" }",
        "3: servers.x.env.A: the value contains a NUL byte; remove the NUL byte",
    ),
    (
        "command = \"x\"\npass_env = [\"*\"]",
        "3: servers.x.pass_env[0]: \"*\" is not a variable; write a name, or the beginning of names and a star, such as \"AWS_REGION\"",
    ),
    (
        "command = \"x\"\ntimeout = \"20m\"",
        "3: servers.x.timeout: `max_timeout` is shorter than `timeout`; progress extends `timeout` up to `max_timeout`: increase `max_timeout`",
    ),
    (
        "command = \"x\"\nrate = \"0/s\"",
        "3: servers.x.rate: \"0/s\" is not a rate; write 1 to 1000000 per s, min, h or day, such as \"100/min\"",
    ),
    (
        "command = \"x\"\nmax_restarts = -1",
        "3: servers.x.max_restarts: out of range; expected a value from 0 to 1000",
    ),
    (
        "url = \"http://x\"\nforward_headers = [\"Host\"]",
        "3: servers.x.forward_headers[0]: this header cannot be configured: it follows from the URL; remove it",
    ),
    (
        "command = \"x\"\ntools.alow = [\"x\"]",
        "3: servers.x.tools.alow: unknown key; did you mean `allow`?",
    ),
    (
        "command = \"x\"\ntools.t.name = \"a b\"",
        "3: servers.x.tools.t.name: not a public tool name; use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`",
    ),
    (
        "command = \"x\"\ntools.t.name = \"a\"\ntools.\"u v\".name = \"a\"",
        "4: servers.x.tools.\"u v\".name: `servers.x.tools.t` has the same public name; give one of them another `name`",
    ),
    (
        "command = \"x\"\nprofile = \"client\"",
        "3: servers.x.profile: unknown key; expected one of: ",
    ),
    (
        "url = \"http://u:p@x\"",
        "2: servers.x.url: not a usable URL: it carries a user name or a password; send credentials as headers = { Authorization = \"…\" }",
    ),
    (
        "url = \"http://x/#f\"",
        "2: servers.x.url: not a usable URL: it has a fragment; write a complete URL that starts with https:// or http://",
    ),
    (
        "url = \"http://x\"\nheaders = { \"a b\" = \"x\" }",
        "3: servers.x.headers.\"a b\": not a header name; write a name such as Authorization or X-Api-Key",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"x\", a = \"y\" }",
        "3: servers.x.headers.a: duplicate name in another spelling; keep one of them",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"x\\ny\" }",
        "3: servers.x.headers.A: the header value contains a character that is not allowed in headers; headers are one line of visible characters",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${env:NONE}\" }",
        "3: servers.x.headers.A: the environment variable `NONE` is not set; set it before the gateway starts, or use ${file:PATH}",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${file:none}\" }",
        "3: servers.x.headers.A: the file `none` cannot be read: entity not found; a relative path starts at the configuration file's folder",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${vault:x}\" }",
        "3: servers.x.headers.A: unknown substitution after `${`, expected `env:`, `file:` or `command:`; write ${env:NAME}, ${file:PATH} or ${command:PROGRAM ARG…}; a plain ${ is written $${",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${env:X\" }",
        "3: servers.x.headers.A: unknown substitution after `${`, expected `env:`, `file:` or `command:`; write ${env:NAME}, ${file:PATH} or ${command:PROGRAM ARG…}; a plain ${ is written $${",
    ),
    (
        "command = \"x\"\nconnect_timeout = \"1s\"",
        "3: servers.x.connect_timeout: this setting is only for servers with `url`",
    ),
    (
        "command = \"x\"\nisolation = \"client\"\nmax_instances = 0",
        "4: servers.x.max_instances: `isolation = \"client\"` needs instances, but `max_instances` is 0; raise `max_instances`, or write isolation = \"shared\"",
    ),
    (
        "command = \"x\"\nisolation = \"client\"\ninstances = \"one\"",
        "4: servers.x.instances: `instances = \"one\"` needs a child that all clients share; remove `instances`, or write isolation = \"shared\"",
    ),
    (
        "url = \"http://x\"\ninstances = \"one\"",
        "3: servers.x.instances: this setting is only for servers with `command`",
    ),
    (
        "url = \"http://x\"\nidle_stop = \"1s\"",
        "3: servers.x.idle_stop: this setting is only for servers with `command`",
    ),
    (
        "url = \"http://x\"\nforward_headers = [\"A\"]\nheaders = { a = \"1\" }",
        "4: servers.x.headers.a: `forward_headers` contains this header too; keep one of them",
    ),
    (
        "command = \"x\"\ntools.t.arguments = 7",
        "3: servers.x.tools.t.arguments: expected a table, found an integer",
    ),
    (
        "command = \"x\"\ntools.t.arguments = \"strct\"",
        "3: servers.x.tools.t.arguments: \"strct\" is not one of the choices; did you mean `strict`?",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a = { valu = 1 }",
        "3: servers.x.tools.t.arguments.a.valu: unknown key; did you mean `value`?",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a = { value = 1, default = 2 }",
        "3: servers.x.tools.t.arguments.a.default: it has no effect beside `value`, which hides the argument from clients; remove one of them",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a = { hide = true, from = \"b\" }",
        "3: servers.x.tools.t.arguments.a.hide: it has no effect beside `from`, which hides",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = \"${env:NONE}\"",
        "3: servers.x.tools.t.arguments.a.value: the environment variable `NONE` is not set",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = \"${header:a b}\"",
        "3: servers.x.tools.t.arguments.a.value: not a header name",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = [\"${header:X-A}\"]",
        "3: servers.x.tools.t.arguments.a.value[0]: `${header:…}` and `${claim:…}` have no value here; they work in `call_headers`",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = inf",
        "3: servers.x.tools.t.arguments.a.value: JSON has no such number",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = 2026-11-23",
        "3: servers.x.tools.t.arguments.a.value: expected a JSON value, found a date; write a text, a number,",
    ),
    (
        "command = \"x\"\ntools.t.result.field = \"a..b\"",
        "3: servers.x.tools.t.result.field: \"a..b\" is not a path of a value; write names with dots",
    ),
    (
        "command = \"x\"\ntools.t.result.template = \"{a\"",
        "3: servers.x.tools.t.result.template: \"{a\" is not a template; write a text with paths",
    ),
    (
        "command = \"x\"\nresult.max_size = \"512B\"",
        "3: servers.x.result.max_size: out of range; expected a value from 1KiB to 2GiB",
    ),
    ("command = \"x\"\nresult.field = \"a\"", "3: servers.x.result.field: unknown key"),
    (
        "command = \"x\"\nresult.when_larger = \"cut\"",
        "3: servers.x.result.when_larger: \"cut\" is not one of the choices",
    ),
    (
        "command = \"x\"\ncheck_output = \"on\"",
        "3: servers.x.check_output: \"on\" is not one of the choices",
    ),
    (
        "command = \"x\"\ntools.t.input_schema = { properties = {} }",
        "3: servers.x.tools.t.input_schema: not a JSON Schema of an object; write a schema with type",
    ),
    (
        "command = \"x\"\ntools.t.input_schema = { type = \"object\", title = \"${env:A}\" }",
        "3: servers.x.tools.t.input_schema.title: substitution is not supported in this setting",
    ),
    (
        "command = \"x\"\ntools.t.input_schema = \"none.json\"",
        "3: servers.x.tools.t.input_schema: the file `none.json` cannot be read",
    ),
    (
        "command = \"x\"\ntools.t.arguments = { a = { rename = \"b\" }, b = { default = 1 } }",
        "3: servers.x.tools.t.arguments.a.rename: not a free name for an argument",
    ),
    (
        "command = \"x\"\ntools.t.arguments = { a = { from = \"b\" }, b = { from = \"c\" } }",
        "3: servers.x.tools.t.arguments.a.from: not an argument with a value of its own",
    ),
];
