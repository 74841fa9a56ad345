//! `[servers.NAME.aws]`: requests that are signed for AWS.

use crate::reader::macros::section;
use crate::source::secret::Secret;

section! {
    /// Requests to the server are signed with AWS Signature Version 4: for servers behind AWS IAM, such
    /// as Bedrock AgentCore, API Gateway and Lambda. Not together with `oauth`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AwsConfig {
        settings {
            /// The region, such as `eu-central-1`.
            region: String,
            /// The name of the service in signatures: `bedrock-agentcore`, `execute-api`, `lambda`.
            service: String,
            /// The id of the access key.
            access_key_id: Secret,
            /// The access key itself.
            secret_access_key: Secret,
            /// The session token of temporary credentials.
            session_token: Option<Secret>,
        }
    }
}
