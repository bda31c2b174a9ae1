// oauth2-mock-server on loopback. Its only argument is the issuer that its tokens name. Says the
// port. Whoever asks for a token names claims in the field `claims` of the form, as JSON; null takes
// one away. Ends with its standard input, so that it never outlives the test that started it.
import { OAuth2Server } from "oauth2-mock-server";

const server = new OAuth2Server();
await server.issuer.keys.generate("RS256");
await server.start(0, "127.0.0.1");
server.issuer.url = process.argv[2];
server.service.on("beforeTokenSigning", (token, request) => {
  for (const [name, value] of Object.entries(JSON.parse(request.body.claims ?? "{}"))) {
    if (value === null) delete token.payload[name];
    else token.payload[name] = value;
  }
});
console.log(server.address().port);
process.stdin.on("end", () => process.exit(0)).resume();
