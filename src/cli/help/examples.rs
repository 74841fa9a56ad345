//! Examples of commands whose arguments are described in the list of commands, or have no file of
//! their own.

/// Examples of the program, below its list of commands.
pub(crate) const PROGRAM_EXAMPLES: &str = "\
Examples:
  trunkline add time -- uvx mcp-server-time     # a server in gateway.toml
  trunkline serve                               # the gateway
  trunkline status                              # its state, and findings

`trunkline COMMAND --help` has examples of each command. Commands about a
running gateway find it by its configuration: -c FILE, or ./gateway.toml.";

pub(crate) const SERVE_EXAMPLES: &str = "\
Examples:
  trunkline serve                            # with gateway.toml
  trunkline serve /etc/trunkline/gateway.toml --log debug";

pub(crate) const STDIO_EXAMPLES: &str = "\
Examples:
  trunkline stdio -c ~/gateway.toml          # in the configuration of a client
  trunkline stdio --connect http://127.0.0.1:8080/mcp";

pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  trunkline status
  trunkline status --json | jq '.findings[].subject'
  trunkline status --url https://gateway.example.com:8081 --key-file ops.key";

pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  trunkline check                            # gateway.toml
  trunkline check new.toml --scan            # and scan its servers";

pub(crate) const SCHEMA_EXAMPLES: &str = "\
Examples:
  trunkline schema > gateway.schema.json     # first line of gateway.toml:
                                             # #:schema ./gateway.schema.json";

pub(crate) const CERT_EXAMPLES: &str = "\
Examples:
  trunkline cert --name gateway.lan          # a CA and a server certificate
  trunkline cert --client ci                 # also one for the client ci";

pub(crate) const LOGIN_EXAMPLES: &str = "\
Examples:
  trunkline login github                     # for the operator
  trunkline login github --client ann        # for the calls of one client";

pub(crate) const REMOVE_EXAMPLES: &str = "\
Examples:
  trunkline remove time
  trunkline remove time --dry-run            # only print the change";

pub(crate) const OPENAPI_EXAMPLES: &str = "\
Examples:
  trunkline openapi https://petstore3.swagger.io/api/v3/openapi.json
  trunkline openapi api.yaml --base-url http://127.0.0.1:8000 --include tag:pets";

pub(crate) const PIN_EXAMPLES: &str = "\
Examples:
  trunkline pin list                         # also those that wait
  trunkline pin diff git
  trunkline pin approve git push commit
  trunkline pin reject git push";

pub(crate) const POLICY_EXAMPLES: &str = "\
Examples:
  trunkline policy test cases.toml
  trunkline policy -c gateway.toml test cases.toml";

pub(crate) const TOOLS_EXAMPLES: &str = "\
Examples:
  trunkline tools                            # of the running gateway
  trunkline tools --tokens --profile support
  trunkline tools --json | jq '.tools[].name'
  trunkline tools new.toml --start           # start the servers of a file";

pub(crate) const REPORT_EXAMPLES: &str = "\
Examples:
  trunkline report                           # of the last 30 days
  trunkline report --days 7 --json";

pub(crate) const AUDIT_EXAMPLES: &str = "\
Examples:
  trunkline audit show --client ci --decision deny
  trunkline audit tail -f                    # new records as they come
  trunkline audit verify -c gateway.toml
  trunkline audit verify audit.jsonl audit.jsonl.1 --key-file chain.key
  trunkline audit verify --separate replica-*/audit.jsonl*";

pub(crate) const VERSION_EXAMPLES: &str = "\
Examples:
  trunkline version";

pub(crate) const EXAMPLE_EXAMPLES: &str = "\
Examples:
  trunkline example                          # list them
  trunkline add clock -- trunkline example clock";

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(trunkline completions bash)       # in ~/.bashrc
  source <(trunkline completions zsh)        # in ~/.zshrc, after compinit
  trunkline completions fish | source        # in ~/.config/fish/config.fish";
