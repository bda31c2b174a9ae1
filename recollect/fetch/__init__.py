"""The one door to the network: addresses come in, answers of bounded size and time go out.

`Fetcher` gets what strangers name: every address is judged before anything is dialled, on each
redirect again, and size and time are bounded. `Endpoint` talks to destinations that the operator
configured and therefore trusts. `GuardedProxy` is the same door as `Fetcher` for HTTP stacks that
are not ours. Where there is a `ForwardProxy`, all of them go through it. Nothing else in the
package may connect to what a URL names.
"""

from recollect.fetch._address import JudgedAddress, Network, parse_url
from recollect.fetch._answer import believable, outcome, said_in, told_time
from recollect.fetch._backend import Dial, Resolver, system_dial, system_resolve
from recollect.fetch._endpoint import Endpoint, EndpointAnswer, Upload
from recollect.fetch._fetcher import Fetched, Fetcher, FetchLimits, Sniff, UrlVerdict, self_test
from recollect.fetch._proxy import GuardedProxy, ProxyLimits
from recollect.fetch._way_out import ForwardProxy, use_proxy

__all__ = [
    "Dial",
    "Endpoint",
    "EndpointAnswer",
    "FetchLimits",
    "Fetched",
    "Fetcher",
    "ForwardProxy",
    "GuardedProxy",
    "JudgedAddress",
    "Network",
    "ProxyLimits",
    "Resolver",
    "Sniff",
    "Upload",
    "UrlVerdict",
    "believable",
    "outcome",
    "parse_url",
    "said_in",
    "self_test",
    "system_dial",
    "system_resolve",
    "told_time",
    "use_proxy",
]
