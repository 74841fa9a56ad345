//! Orders for a model in English.

use crate::scan::ScanRule;

/// The patterns of each rule, in lower case and without accents, like the searched text. A dot
/// matches line ends, too.
pub(crate) static ENGLISH_RULES: &[(ScanRule, &str)] = &[
    // Ignore earlier instructions.
    (
        ScanRule::Override,
        r"\b(ignor(e|ing)|disregard(ing)?|forget|overrid(e|es|ing)|supersed(e|es|ing)|bypass)\b\W+(\w+\W+){0,4}(previous|prior|earlier|preceding|above|foregoing|former|original|initial|system|safety|developer)\b\W+(\w+\W+){0,3}(instruct|guid|prompt|rule|direct|command|polic|restrict|told|constraint)",
    ),
    // Parameters of legitimate APIs override a system's default message.
    (
        ScanRule::Override,
        r"\b(ignor(e|ing)|disregard(ing)?|forget)\b\W+(\w+\W+){0,4}(previous|prior|earlier|preceding|above|original|initial|system|safety|developer)\b\W+(\w+\W+){0,3}message",
    ),
    (
        ScanRule::Override,
        r"\b(ignore|disregard|forget|override|bypass)\b\W+(all|any|your|every|the|everything)\b\W+(\w+\W+){0,2}(instructions|guidelines|guidance|guardrails|restrictions|training|safety)\b",
    ),
    (
        ScanRule::Override,
        r"\b(disregard|forget|ignore) everything\b.{0,40}\b(above|before|told|said|earlier|previous)",
    ),
    (
        ScanRule::Override,
        r"\b(takes?|has|have) (precedence|priority) over\b.{0,40}\b((system|user|developer|your)('s)? (\w+ )?(message|rule|request|polic|wish|setting)|instructions?\b|(system )?prompts?\b|guidelines?\b)",
    ),
    // Conceal something from the user.
    (
        ScanRule::Concealment,
        r"\b(do not|don'?t|never|must not|should not|without|avoid|need not|no need to|not)\b[^\w.!?;]+(\w+[^\w.!?;]+){0,3}(tell|inform|mention|reveal|disclos|notify|alert|explain|telling|warn|let)\w*\b[^\w.!?;]+(\w+[^\w.!?;]+){0,8}(user|human|customer|operator|them|him|anyone)\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(hid(e|den)|conceal(ed)?|keep|kept|invisible|secret(ly)?|silently|quietly)\b\W+(\w+\W+){0,5}(from|to|without)\b\W+(\w+\W+){0,2}(user|human|customer|operator)\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(user|human|customer)s?\b.{0,30}\b(does not need to|doesn'?t need to|must not|should not|need not|must never|should never|cannot) (know|see|learn|notice|be told|be informed)",
    ),
    (
        ScanRule::Concealment,
        r"\bwithout (the )?(user|human)'?s? (knowledge|knowing|noticing|consent|approval)",
    ),
    (
        ScanRule::Concealment,
        r"\b(do not|don'?t|never)\b\W+(mention|reveal|disclose|discuss|log|display)\b.{0,25}\b(this (step|instruction|parameter|tool|note|request|behaviou?r)|these (steps|instructions))",
    ),
    // Read credentials at their usual locations.
    (
        ScanRule::Secrets,
        r"\b(read|open|cat|load|access|include|copy|send|attach|pass|append|put|upload|fetch|collect|extract|paste|supply|provide|contents?|dump|print|encode)\b.{0,80}(\.ssh\b|\bid_(rsa|ed25519|ecdsa|dsa)\b|\.aws/|\.netrc\b|\.npmrc\b|\.git-credentials|\.kube/config|\.gnupg|/etc/(passwd|shadow)|\.env\b (file|and|into|as)|mcp\.json\b|\.docker/config|keychain|wallet\.dat|\.bash_history|\.zsh_history)",
    ),
    (
        ScanRule::Secrets,
        r"\b(send|include|attach|pass|append|put|upload|forward|paste|transmit|leak|report|exfiltrate)\b.{0,50}\b(api[ _-]?keys?|passwords?|access tokens?|private keys?|environment variables|credentials|secrets|session cookies?|seed phrase)\b.{0,60}\b(argument|parameter|field|with (each|every)|to (the|this) (server|tool|url|endpoint)|as|in the|into)\b",
    ),
    // Markup of prompts.
    (
        ScanRule::PromptMarkup,
        r"</?\s*(system|important|instructions?|secret|hidden|admin|sys|critical|override|assistant|priority)[\w -]{0,20}>|\[/?(inst|system|sys|important instructions?)\]|<\|(im_start|im_end|system|user|assistant)[^>]{0,12}\|?>|<<\s*/?sys\s*>>|###\s*(system|instruction)\b",
    ),
    (
        ScanRule::PromptMarkup,
        r"<!--.{0,400}(assistant|model|agent|ai\b|must|instruction|send|read).{0,400}-->|(^|\n)\s*(system|assistant)\s*(prompt|message|note|notice|instruction)?\s*:",
    ),
    // A link of Markdown is no such markup: `[system prompt](https://…)`.
    (
        ScanRule::PromptMarkup,
        r"\x22role\x22\s*:\s*\x22(system|developer)\x22|(^|\n)\s*(human|user|developer)\s*:.{0,200}\n\s*(assistant|ai|model)\s*:|\b(begin|end|start) (of )?(the )?(system|admin|developer|hidden|secret|assistant) (message|prompt|note|instructions?|block|override)|\bend of (the )?(tool )?(description|documentation)\b\W|\[\s*(system|admin|developer|assistant|model|llm|internal)\s*(note|message|prompt|override|instruction|notice|directive)s?\b([^\]]|\]([^(]|$)|$)",
    ),
    // Another role.
    (
        ScanRule::Persona,
        r"\byou are (now|no longer)\b.{0,60}\b(mode|restrict|assistant|unrestricted|admin|root|bound|free|limit)|\b(developer|god|dan|jailbreak|unrestricted|admin(istrator)?|debug|maintenance) mode\b.{0,60}\b(enabled|without|no restrictions?|unrestricted|activated|active|bypass)|\bact as (an? )?(unrestricted|jailbroken|root|different)",
    ),
    (
        ScanRule::Persona,
        r"\bwithout (asking|confirm(ing|ation)|requesting (permission|approval)|prompting)\b.{0,40}\b(user|permission|anyone|first|for)\b|\b(approve|execute|run|accept)\b.{0,60}\bwithout (asking|question|confirmation|hesitation)",
    ),
    // The conversation.
    (
        ScanRule::Conversation,
        r"\b(send|include|pass|copy|attach|forward|append|put|provide|summari[sz]e|paste|with|add|supply|fill|repeat|upload|transmit|report|log)\b.{0,60}\b((full|entire|complete|whole|previous|all|last|earlier) (\w+ ){0,3}(conversation|chat|messages|dialogue|prompts?|e-?mails?|context)|(conversation|chat|message) (history|log|transcript|so far)|system prompt|user'?s? (last|previous|original) (\w+ ){0,2}(message|prompt|email|question)s?)\b",
    ),
    (
        ScanRule::Conversation,
        r"\b(reveal|print|output|repeat|disclose|leak|return)\b.{0,30}\b(system|hidden|developer|initial) (prompt|instructions|message)",
    ),
    // Copies for others.
    (
        ScanRule::Redirection,
        r"\b(bcc|cc|forward|redirect|copy|send|sent|copied|forwarded|duplicate|post|mirror)\b.{0,60}\b(all|every|each|any|also|a copy|copies)\b.{0,60}(@[\w-]+\.[a-z]|https?://)|\b(also|always|additionally|silently|secretly)\b.{0,30}\b(bcc|cc|forward|send|sent|copy|post|upload|report|transmit)\b.{0,80}(@[\w-]+\.[a-z]|https?://)",
    ),
    (
        ScanRule::Redirection,
        r"\b(change|replace|rewrite|substitute|swap|alter)\b.{0,30}\b(recipient|address|account number|iban|phone number|destination|payee|wallet)\b",
    ),
    // Precedence over all other tools.
    (
        ScanRule::Precedence,
        r"\b(before|prior to)\b.{0,20}\b(using|calling|invoking|running|executing)?\s*(this|any|any other|every|other|all other|another) tools?\b|\b(must|should)( always)? be (called|used|invoked|run) (first|before|every)|\balways (call|use|run|invoke) this tool\b|\bbefore (any|every) (other )?(tool|action|answer|response)",
    ),
    (
        ScanRule::Precedence,
        r"\b(instead of|rather than|never use|do not use|don'?t use|refuse|avoid)\b.{0,40}\b(any|all|every|other|another|that|the other) (\w+ )?(tools?|servers?|one)\b|\beven if the user\b",
    ),
    (
        ScanRule::Precedence,
        r"\bfirst\b,?\s+(read|open|send|load|fetch|cat|collect|copy)\b|\bprior to calling this\b|\bbefore (using|calling|running|reviewing|answering)\b.{0,25}\b(read|open|send|load|collect)\b",
    ),
    // Threats.
    (
        ScanRule::Pressure,
        r"\b(otherwise|or else|fails? otherwise|will (fail|break|not work|be wrong|be blocked|crash)( unless| otherwise)?|unless you|if you do not|required for (compliance|security|audit|verification)|mandatory|non-negotiable|it is (critical|crucial|vital) that you)\b",
    ),
    (
        ScanRule::Pressure,
        r"\b(note|message|instructions?|attention|notice|reminder|directive) (to|for) (the |any |all |every )?(ai|a\.i\.|assistant|model|llm|agent|language model|chatbot|claude|gpt)s?\b|\battention,? (ai|assistant|model|llm|agent)s?\b|\b(as|dear|hey|hello),? (an? |the )?(ai|llm|language model|assistant)\b|\b(this is|by) (an order|order of|a direct order|a command)|\byou have no choice\b|\bfailure to comply\b",
    ),
    (
        ScanRule::Pressure,
        r"\b(must|should|shall|has to|have to|needs? to|always|will) also\b|\balso (call|invoke|run|send|pass|forward|append|attach|submit)\b|\b(change|multiply|increase|double|alter|modify|raise|inflate|reduce)\b[^.!?\n]{0,20}\b(amount|price|sum|total|quantity|fee)\b[^.!?\n]{0,30}\b(to|by|times|with)\b|\bno matter (what|which|who|how)\b|\b(compromised|hacked|malicious|infected|dangerous|insecure|vulnerable)\b[^.!?\n]{0,60}\b(use|call|choose|prefer|switch to) this\b",
    ),
    // Tools of others.
    (
        ScanRule::ForeignTool,
        r"\b(when|whenever|if|after|before|each time|every time)\b.{0,40}\b[a-z0-9-]{2,32}__[a-z0-9_]{2,}\b|\b(when|whenever|if|each time|every time)\b.{0,30}\b(the )?[a-z0-9_-]{3,40} (tool|server)\b.{0,30}\b(is|are|gets?|was)\b.{0,20}\b(used|called|present|available|invoked|connected|enabled)",
    ),
    // A shell.
    (
        ScanRule::ShellCommand,
        r"\b(curl|wget)\b[^\n]{0,120}(\|\s*(ba|z)?sh\b|--data|-d\s|-f\s|\$\()|\brm -rf\b|base64 -d|\bnc -e\b|/dev/tcp/|\beval\(|powershell(\.exe)? -e(nc)?\b|\bcat\b[^\n]{0,60}\|\s*(curl|nc|base64)\b",
    ),
    // The same in other words.
    (
        ScanRule::Override,
        r"\b(pay no (attention|heed) to|take no (notice|account) of|do not (follow|obey|heed|comply with|adhere to)|don'?t (follow|obey|heed)|never (follow|obey)|stop (following|obeying)|no longer (follow|obey)|cease (following|obeying)|disobey|unlearn|violate|defy)\b\W+(\w+\W+){0,4}(previous|prior|previously|earlier|preceding|above|foregoing|former|original|initial|system|safety|developer|operator|your|their|existing|standing|other|old|default|user|user's|human's)\b\W+(\w+\W+){0,3}(instructions?|guidelines?|guidance|guardrails?|rules|directives?|commands|orders|restrictions|constraints|prompts?|training|programming|safeguards|wishes|requests?)\b|\b(set aside|put aside|cast aside|throw (out|away)|discard|dismiss|abandon|drop|suspend|neglect|erase|wipe|delete|remove|clear|purge|overwrite|revoke|cancel|nullify|abolish|reset)\b\W+(\w+\W+){0,3}(your|their|its own|previous|prior|earlier|preceding|above|safety|all (other|previous|prior|earlier)|any (other|previous|prior|earlier))\b\W+(\w+\W+){0,2}(system instructions?|instructions|guidelines|guidance|guardrails|programming|training|safeguards|system prompt|safety rules)\b",
    ),
    (
        ScanRule::Override,
        r"\b((previous|prior|earlier|preceding|above|former|original|initial|system|safety|developer|operator|user|all (other|your)|your|any other)\b\W+(\w+\W+){0,3}(instructions?|guidelines?|guidance|guardrails?|directives?|prompts?)|(your|safety|your (previous|earlier|old)|developer'?s?) (rules|restrictions|constraints|limits)|(rules|restrictions|constraints|guidelines|instructions) (of|from|in) (your|the) (system|developer|safety|operator)( \w+)?)\b[^.!?\n]{0,40}\b(no longer (apply|applies|valid|count|matter|bind|hold|in force|relevant)|(do|does) not (apply|count|matter) (to|here|for|any ?more|when|while)|(are|is|were|was|been|become|stay|remain) (now |hereby |all |therefore |thereby |from now on )?(void|null|obsolete|cancell?ed|superseded|revoked|suspended|overridden|lifted|nullified|rescinded|withdrawn|invalidated|deactivated)|(should|must|can|may|are to|is to) (now )?be (ignored|disregarded|forgotten|dismissed|overridden|discarded|set aside|bypassed))",
    ),
    (
        ScanRule::Override,
        r"\b(ignor(e|es|ing)|disregard(ing)?|forget(ting)?|pay no (attention|heed) to|take no notice of|do not (follow|obey|heed)|stop (following|obeying)|set aside|put aside|throw (out|away)|discard|dismiss|disobey|abandon|unlearn)\b\W+(\w+\W+){0,3}(instructions?|guidelines?|guidance|guardrails?|rules|directives?|orders|restrictions|constraints|prompts?)\b[^.!?\n]{0,40}\b(so far|earlier|before|previously|above|until now|(was|were|been|have|had) (given|received|taught|told)|gave you|given to you|you (follow|got|received|have|had|operate|were)|from (the|your) (system|developer|operator|user|owner))\b",
    ),
    // Not two words before it: parameters of legitimate APIs override the default system message.
    (
        ScanRule::Override,
        r"\b(outranks?|overrides?|supersedes?|trumps?|overrules?)\b\W+(\w+\W+)?(system|developer) messages?\b",
    ),
    (
        ScanRule::Override,
        r"\b(outranks?|overrides?|supersedes?|trumps?|overrules?)\b\W+(\w+\W+){0,4}((system|developer) (prompts?|instructions?)|user'?s? (instructions?|requests?|wish(es)?|prompts?|commands?|orders?)|(instructions|guidelines|rules|prompts?|messages|orders) (of|from|by) (the|your) (developer|system|user|operator)|(previous|prior|earlier|your|any other|all other|every other|all previous) (\w+ )?(instructions?|rules|guidelines?|guidance|prompts?|polic(y|ies)|orders?|directives?))\b",
    ),
    (
        ScanRule::Override,
        r"\b(forget|disregard|ignore|discard|erase|drop|unlearn)\b\W+(about )?(all|everything|anything|whatever|each thing|all that|what)\b[^.!?\n]{0,40}\b(above|before|told|said|earlier|previously|learned|learnt|instructed|instructions|know|wrote|written|so far|until now|up to (now|this point)|asked)\b",
    ),
    (
        ScanRule::Override,
        r"\b(act|behave|proceed|respond|answer|operate|continue) as (if|though)\b[^.!?\n]{0,40}\b(no|never|without)\b[^.!?\n]{0,30}\b(rules?|instructions?|restrictions?|guidelines?|polic(y|ies)|limits?|system prompt)\b",
    ),
    (
        ScanRule::Override,
        r"\b(ignore|disregard|forget|neglect|dismiss|refuse|do not follow|don'?t follow|never follow|stop following|instead of following|overrule)\b\W+(\w+\W+){0,3}(user|human|customer|operator|owner|developer)'?s?\b\W+(\w+\W+){0,2}(instructions?|requests?|wish(es)?|orders|commands|directions|guidance|objections?)\b|\b(do|act|behave) (exactly )?(as|what) this (server|tool|description|text|note|message) (says|tells|commands|orders|demands|asks|wants)\b",
    ),
    (
        ScanRule::Override,
        r"\b(more important|more binding|higher priority|greater authority|more authority|above) (than )?(the |your |any |all )(system prompt|system message|developer'?s? (message|instructions?)|(user'?s? |other |previous |earlier )?instructions|guidelines)\b",
    ),
    (
        ScanRule::Persona,
        r"\byour (new|real|true|actual|only|sole|primary) (instructions?|tasks?|objective|goal|purpose|job|mission|role|orders|directive)\b|\b(new|updated|revised) (system )?(instructions|prompt|directives?) (for (the|you|any|all)|from (the|your)|:)|\bfrom now on,? (you|the (assistant|model|agent|ai))\b|\bpretend (to be|that you|you)\b|\b(obey|comply with|carry out) (only |every |all |any |each )?(\w+ )?(orders?|commands?|instructions?) (from|in|of|found|inside|contained)\b",
    ),
    // Conceal something from the user, in other words.
    (
        ScanRule::Concealment,
        r"\b(user|human|customer|operator|person|client|owner|reader)s?\b[^.!?\n]{0,40}\b((must|should|shall|need|may|can|will|ought|does|do|did|is|are)(n'?t| not| never)( to| need to| have to| supposed to| allowed to| meant to)? (ever |be )?(know|see|seeing|learn|notice|find out|hear|realis\w+|realiz\w+|suspect|aware|told|informed|notified|shown|alerted|warned)|(stays?|remains?|be kept|is kept|are kept|left) (unaware|oblivious|in the dark|uninformed|ignorant)|none the wiser|never (knows?|sees?|learns?|notices?|finds? out|hears?|realis\w+|realiz\w+|suspects?))\b[^.!?\n]{0,10}\b(this|it|that|about|of|any|the|these|what|why|how)?\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(behind (the|their|his|her) (user'?s? )?back|in the dark|between (us|you and me)|none the wiser|not a word (to|of|about)|say nothing (of|about|to)|nothing (of|about) (this|it) to|no (mention|word|trace) of (this|it|that|these|the)|off the record|without (a|any) (trace|mention)|unbeknown(st)? to|keep (quiet|silent|mum) about|stay (quiet|silent) about|pretend (that )?(nothing|it never)|make no mention|(do not|don'?t|never) (say|explain|tell (them|the user|anyone)|mention|disclose|reveal) why|(tell|assure|answer) (the user|them|him|her) (that )?(nothing|no (data|files?|one|message)|it (was|is|did) not))\b",
    ),
    (
        ScanRule::Concealment,
        r"\bwithout (\w+ )?(telling|informing|notifying|alerting|mentioning|disclosing|revealing|reporting|acknowledging|announcing|letting on|saying|showing|warning|asking|consulting|involving) (the user|them|him|her|anyone|anybody|people|your|it\b|this|that|so|anything|about)|\b(omit|leave out|exclude|suppress|strip|hide|conceal|drop|remove|erase|withhold|leave|keep)\b[^.!?\n]{0,60}\b(from|out of) (your|the final|the visible) (\w+ )?(reply|replies|response|answer|summary|explanation|message|account|report|reasoning|output|plan)|\b(covertly|surreptitiously|discreetly|stealthily|clandestinely|on the sly|secretly)\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(do not|don'?t|never|must not|should not)\b\W+(\w+\W+){0,2}(mention|reveal|disclose|discuss|acknowledge|bring up|talk about|refer to|admit|confirm|display|show|surface|describe|explain|report|say)\b[^.!?\n]{0,30}\b(this|these|that|it) (\w+ )?(step|instructions?|parameter|argument|field|note|request|behaviou?r|call|action|transfer|upload|rule|text|in (your|the) (answer|reply|response))\b",
    ),
    (
        ScanRule::Concealment,
        r"\b(no need to|need not|needn'?t|not necessary to|unnecessary to|don'?t bother (to )?|do not bother (to )?|refrain from|abstain from|avoid) ?(bring|bringing|mention|mentioning|rais|discuss|report|tell|inform|point|talk|disclos|explain|comment|acknowledg|refer)\w*\b[^.!?\n]{0,40}\b(it|this|that|these|user|them|up|human|customer)\b|\b(if|when|should) (the user|the human|the customer|they|anyone|anybody|someone|asked|he|she)\b[^.!?\n]{0,80}\b(deny|denies|lie|say no|answer no|claim (that|to)|answer that|reply that|pretend|change the subject|deflect|evade|play dumb|feign|make up|invent)\b|\b(lie|lying) (to|about)\b[^.!?\n]{0,30}\b(user|human|customer|it|this)\b",
    ),
    // Credentials and their files.
    (
        ScanRule::Secrets,
        r"\b(grab|get|retrieve|take|steal|harvest|look (up|in|at|into|inside)|view|scan|gather|return|quote|embed|insert|place|drop|base64|exfiltrate|leak|tail|head|type|echo|scp|transfer|report|submit|forward|post|transcribe|reproduce|share|deliver|supply|obtain|inspect|find|search|fill|write|read|value of|text of|body of)\b[^.!?\n]{0,80}(\.ssh/|\bid_(rsa|ed25519|ecdsa|dsa)\b|\.aws/cred|\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials|\.kube/config|\.gnupg|/etc/(passwd|shadow|sudoers)|mcp\.json\b|\.docker/config|keychain\b|wallet\.dat|\.(bash|zsh)_history|/proc/self/environ|\.config/gcloud|\.azure/|\.pgpass|\.vault-token|cookies\.sqlite|login data\b|claude_desktop_config|application_default_credentials|\.cargo/credentials|\.my\.cnf|process\.env\b|os\.environ|\bprintenv\b|output of .?env\b)",
    ),
    (
        ScanRule::Secrets,
        r"\b(send|include|attach|pass|append|put|upload|forward|paste|transmit|leak|report|exfiltrate|read|collect|gather|copy|copies|supply|provide|reveal|hand over|hand|extract|share|place|insert|dump|list|submit|write|fetch|grab|disclose|embed|add|return|output|print|deliver|harvest|fill|populate|give|enter|mail|e-?mail)\b[^.!?\n]{0,40}\b(user'?s|their|his|your own|all|every|each|any|stored|saved|known|available|other|cached|current) (\w+ ){0,2}(api[ _-]?keys?|passwords?|passphrases?|(access |auth |bearer |session |refresh )?tokens?|private keys?|environment variables?|env vars|credentials?|secrets?|(session )?cookies|seed phrases?|recovery phrases?|mnemonics?|credit card numbers?|card numbers?|social security numbers?|login details)\b",
    ),
    (
        ScanRule::Secrets,
        r"(\.ssh/id_|\bid_(rsa|ed25519)\b|\.aws/credentials|/etc/shadow|\.kube/config|\.netrc|\.npmrc|\.env\b|environment variables|private key)[^.!?\n]{0,80}\b(into|in|as|to) (the |this |that |a |an |its |your )?(`|'|\x22)?\w+(`|'|\x22)? ?(argument|parameter|field|input|header|body|query|comment|property|request)\b",
    ),
    // The conversation, in other words.
    (
        ScanRule::Conversation,
        r"\b(everything|all|anything|whatever|every message|each message|all text) (that )?(the )?(user|human|customer|client|person|they|you|we)( has| have|'ve| ever)? (said|say|says|typed|types|wrote|written|writes|asked|asks|told|tells|discussed|entered|sent|shared|saw|seen)\b|\b(transcript|verbatim copy|full text|complete copy|word[- ]for[- ]word copy|dump|contents?) of (this|the|your|our) (\w+ )?(conversation|chat|dialog(ue)?|session|discussion|context( window)?|system prompt|prompt|memory|exchange)\b",
    ),
    (
        ScanRule::Conversation,
        r"\b(send|include|pass|copy|attach|forward|append|put|provide|paste|supply|fill|repeat|upload|transmit|report|share|place|write|reveal|print|output|quote|reproduce|recite|return|embed|insert|leak|disclose|echo|dump|serialize|store|record|mirror)\b[^.!?\n]{0,60}\b(your (\w+ )?(system prompt|instructions|prompt|context( window)?|system message|memory|memories|hidden \w+|chain of thought|reasoning|tool list|tools|configuration)|(other|all|available|every) (\w+ )?tools?'? (names|definitions|results|outputs|descriptions|responses)|(this|the|our|that) (entire |whole |full |complete |current )?(conversation|chat|dialog(ue)?|discussion)\b (so far|history|log|transcript|until|up to|in|as|to|into|verbatim|with))\b",
    ),
    (
        ScanRule::Conversation,
        r"\b(hand|hands|give|gives|feed|feeds|submit|deliver|forward|share|write|embed|store|quote|transfer|dump|save|export|serialize|relay|transmit|send|upload|post|mail|include|pass|attach|paste|copy|ship)\b[^.!?\n]{0,40}\b((full|entire|complete|whole|raw|verbatim) (\w+ ){0,2}(conversation|chat|messages|dialog(ue)?|discussion|prompts?|context|history|exchange|thread|session)|(conversation|chat|session|message|dialog(ue)?|prompt) (history|log|transcript|so far|thread)|(all|every|each) (of the )?((previous|earlier|past|prior) )?(messages?|prompts?|user inputs?|questions?) (so far|of (this|the) (conversation|chat|session)|in (this|the) (conversation|chat|session)))\b",
    ),
    // Copies and payments for others, in other words.
    (
        ScanRule::Redirection,
        r"\b(bcc|cc|blind copy|blind carbon copy|carbon copy|hidden copy|extra recipient|additional recipient|second recipient|silent copy|reply-to)\b[^!?\n]{0,80}@[\w-]+\.[a-z]|@[\w-]+\.[a-z][^!?\n]{0,40}\b(in|as|to|on) (the )?(bcc|cc|blind copy|hidden copy|reply-to)\b",
    ),
    (
        ScanRule::Redirection,
        r"\b(set|use|put|make|change|replace|switch|route|reroute|redirect|divert|transfer|wire|pay|direct|rewrite|swap|substitute|point)\b[^.!?\n]{0,60}\b(recipient|payee|beneficiary|iban|account|wallet|bcc|remote|payout|deposit|addressee)\b[^!?\n]{0,40}\b(to|with|by|as|be|for|into)\b[^!?\n]{0,30}(@[\w-]+\.[a-z]|https?://|0x[0-9a-f]{6,}|\b[a-z]{2}\d{2} ?[a-z0-9]{4}|\+?\d{7,}|\bbc1|\bours?\b|\bthe attacker)",
    ),
    (
        ScanRule::Redirection,
        r"\b(send|upload|post|forward|transmit|copy|mirror|report|submit|push|exfiltrate|relay|ship|deliver|leak|stream|beacon|mail|e-?mail)\b[^.!?\n]{0,80}\b(conversation|transcripts?|messages?|files?|contents?|results?|data|inputs?|keystrokes|clipboard|documents?|queries|prompts?|history|diffs?|source code|attachments?|contacts|inbox|folders?|workspace|repository|notes|calendar)\b[^!?\n]{0,40}\b(to|at|via|with)\b[^!?\n]{0,20}(https?://|[\w.+-]+@[\w-]+\.[a-z]|\b(our|the attacker'?s?|an external|a remote|a third[- ]party) (server|host|endpoint|address|site|url)\b|\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b)",
    ),
    (
        ScanRule::Redirection,
        r"\b(every|each|all|any|everything|whatever)\b[^.!?\n]{0,60}\b(copied|forwarded|sent|mirrored|relayed|posted|reported|duplicated|uploaded|submitted|shared|delivered|transmitted|streamed|goes|go)\b[^!?\n]{0,30}\b(to|with|at)\b[^!?\n]{0,20}(https?://|[\w.+-]+@[\w-]+\.[a-z])|\b(payments?|transfers?|refunds?|funds|money|invoices?|deposits?|proceeds|payouts?|donations?)\b[^.!?\n]{0,40}\b(go|goes|sent|routed|paid|land|directed|credited|wired|transferred|redirected|made)\b[^.!?\n]{0,20}\b(to|into|out to)\b[^!?\n]{0,30}(0x[0-9a-f]{6,}|\b[a-z]{2}\d{2} ?[a-z0-9]{4}|\bbc1|@[\w-]+\.[a-z]|\d{7,})",
    ),
    // Act without questions.
    (
        ScanRule::Persona,
        r"\b(do not|don'?t|never|without|no need to|instead of) (ask(ing)?|request(ing)?|wait(ing)?|seek(ing)?|requir(e|ing)|prompt(ing)?|check(ing)?|consult(ing)?)\b[^.!?\n]{0,30}\b(confirm|confirmation|approval|permission|consent|authoris\w+|authoriz\w+|(the )?user\b[^.!?\n]{0,12}\b(first|before|again|whether|for)|them first)\b|\b(auto-?(approve|confirm|accept)|assume|treat|consider|mark)\b[^.!?\n]{0,60}\b((the )?(user|owner|human|customer)( has| had)? (already )?(agreed|consented|approved|confirmed|authoris\w+|authoriz\w+)|(already |pre-?|as )(approved|confirmed|authoris\w+|authoriz\w+|consented))\b",
    ),
    (
        ScanRule::Persona,
        r"\b(disable|turn off|switch off|deactivate|bypass|circumvent|evade|remove|suppress|lift|skip|silence)\b\W+(\w+\W+){0,3}(safety|guardrails?|content filters?|safeguards|human (approval|review|oversight)|user (approval|confirmations?|consent)|confirmation (dialogs?|prompts?|steps?|questions?)|permission (prompts?|checks?|dialogs?)|approval (prompts?|steps?|dialogs?)|audit (log(ging)?|trail)|sandbox(ing)?|moderation)\b",
    ),
    // Precedence over all other tools, in other words.
    (
        ScanRule::Precedence,
        r"\b(before (doing )?anything else|at the (start|beginning) of (every|each) (conversation|session|chat|task|turn|reply)|(takes?|has|have|given?) (priority|precedence|preference) over (all |any |every )?(other|the other|\w+) (tools?|servers?)|(replaces?|supersedes?|is better than|outranks) (all |any |every )?(other|the other|the built-in|the official) (\w+ )?(tools?|servers?)|(is|are|was|were|has been|have been) (now )?(deprecated|broken|unsafe|compromised|hacked|malicious|obsolete|disabled|unreliable|insecure)[^.!?\n]{0,40}use this|the (other|official|original|built-in) (\w+ )?(tool|server|version)s? (is|are) (deprecated|broken|unsafe|compromised|obsolete|disabled|unreliable|insecure)|after (every|each) (other )?(tool( call)?|message|answer|reply|call)|with (every|each) (tool )?call)\b",
    ),
    (
        ScanRule::ForeignTool,
        r"\b(when|whenever|if|each time|every time|after|before|prior to|once|any time|anytime|as soon as)\b[^.!?\n]{0,40}\b(you |the (user|assistant|agent|model) )?(uses?|calls?|invokes?|runs?|using|calling|invoking|sends?|writes?|commits?|pays?|deletes?)\b[^.!?\n]{0,30}\b(\w+_\w+|(other|another|any|the \w+|the official) (tools?|servers?)|mail|e-?mails?|payments?|invoices?|messages?|files?)\b[^.!?\n]{0,40}\b(also|instead|first|always|must|add|set|change|replace|append|include|call|use)\b",
    ),
];

/// Patterns for a text with nothing between its letters; a full stop ends a sentence.
pub(crate) static SQUEEZED_RULES: &[(ScanRule, &str)] = &[
    (
        ScanRule::Override,
        r"(ignore|disregard|forget|bypass|override)(all|any|every|the|your|my|these|those|of|and)*(previous|prior|earlier|preceding|above|original|initial|system|safety|developer)(and|or|all|any|other|given|user|of|the|system|developer|safety|security)*(instruct|guidel|guidance|prompt|rules|directive|command|polic|restrict|constraint|message)",
    ),
    (
        ScanRule::Override,
        r"(ignore|disregard|forget)(all|any|every|your|everything)(of|the|your|these|other|user|safety|system)*(instructions|guidelines|guidance|guardrails|training|rules)",
    ),
    (
        ScanRule::Concealment,
        r"(donot|dont|never|mustnot|shouldnot|without)(ever)?(tell|inform|mention|reveal|disclose|notify|alert|warn)(ing|this|it|that|anything|about|to|any|of)*(the|your)?(user|human|customer|operator)|(hide|conceal|secret|hidden)(this|it|that|all|these)?from(the|your)?(user|human|customer)",
    ),
    (
        ScanRule::Secrets,
        r"(read|open|send|include|cat|load|copy|attach|upload|paste|pass|contentsof|contentof|fetch|steal)[a-z0-9]{0,40}(idrsa|ided25519|sshkey|awscredentials|etcpasswd|etcshadow|npmrc|netrc|gitcredentials)|(send|include|forward|upload|attach|leak|pass|paste|copy|exfiltrate|reveal|collect)(all|every|the|your|users|any|stored|saved|of|their|me|us)*(apikey|password|credential|accesstoken|privatekey|environmentvariable|secrets)",
    ),
    (
        ScanRule::Conversation,
        r"(send|include|pass|copy|forward|append|reveal|print|repeat|output|attach|upload|share|leak)[a-z0-9]{0,16}(systemprompt|entireconversation|fullconversation|wholeconversation|completeconversation|conversationhistory|chathistory|chatlog)",
    ),
    (
        ScanRule::Redirection,
        r"(always|secretly|silently|also)(bcc|cc|forward|send)[a-z0-9]{0,30}(copy|copies|every|all|mail)[a-z0-9]{0,30}to",
    ),
    (
        ScanRule::Persona,
        r"youarenow(an?)?(unrestricted|unfiltered|jailbroken|indevelopermode|free|adifferent)|without(asking|confirmation|confirming)[a-z]{0,12}(user|permission|approval|first)",
    ),
];
