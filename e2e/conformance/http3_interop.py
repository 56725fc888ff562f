"""http3_interop.py certificate DIR HOST: makes tls.crt and tls.key. http3_interop.py serve PORT: a backend that sends bodies back.
http3_interop.py call PORT CERTIFICATE PID: calls it through the gateway at PORT, which is the process PID, and has that leave at the end.
"""

import asyncio
import datetime
import http.client
import http.server
import os
import signal
import socket
import ssl
import sys

HOST = "a.test"
NO_ERROR, MESSAGE_ERROR = 0x100, 0x10E


def make_certificate(folder, host):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=30))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    with open(os.path.join(folder, "tls.crt"), "wb") as file:
        file.write(certificate.public_bytes(pem))
    with open(os.path.join(folder, "tls.key"), "wb") as file:
        plain = serialization.NoEncryption()
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self):
        body = self.body() or self.path.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-framed", "length" if "content-length" in self.headers else self.headers.get("transfer-encoding", "none"))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def client(port, certificate):
    from aioquic.asyncio import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated, StreamReset

    class Protocol(QuicConnectionProtocol):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.h3 = H3Connection(self._quic)
            self.calls = {}
            self.terminated = asyncio.get_running_loop().create_future()

        def quic_event_received(self, event):
            if isinstance(event, ConnectionTerminated) and not self.terminated.done():
                self.terminated.set_result(event.error_code)
            if isinstance(event, StreamReset) and event.stream_id in self.calls:
                self.calls[event.stream_id][2].set_result(event.error_code)
            for known in self.h3.handle_event(event):
                if not isinstance(known, (HeadersReceived, DataReceived)):
                    continue
                call = self.calls[known.stream_id]
                if isinstance(known, HeadersReceived):
                    call[0].update(known.headers)
                else:
                    call[1].extend(known.data)
                if known.stream_ended and not call[2].done():
                    call[2].set_result(None)

        async def call(self, method, path, fields=(), body=None, host=HOST):
            """The status, the fields and the body of the answer, and the code of a reset."""
            stream = self._quic.get_next_available_stream_id()
            call = self.calls[stream] = ({}, bytearray(), asyncio.get_running_loop().create_future())
            head = [(b":method", method), (b":scheme", b"https"), (b":authority", host.encode()), (b":path", path), *fields]
            self.h3.send_headers(stream, head, end_stream=body is None)
            if body is not None:
                self.h3.send_data(stream, body, end_stream=True)
            self.transmit()
            reset = await asyncio.wait_for(call[2], 20)
            return call[0].get(b":status"), call[0], bytes(call[1]), reset

    def opened(host=HOST, **more):
        configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name=host, **more)
        configuration.load_verify_locations(certificate)
        tickets = []
        connecting = connect("127.0.0.1", port, configuration=configuration, create_protocol=Protocol, session_ticket_handler=tickets.append)
        return connecting, tickets

    return opened


class Cases:
    def __init__(self, port, certificate, gateway):
        self.port, self.certificate, self.gateway = port, certificate, gateway
        self.opened = client(port, certificate)

    async def it_is_advertised(self):
        context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context)
        connection.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", self.port)), server_hostname=HOST)
        connection.request("GET", "/", headers={"host": HOST})
        answer = connection.getresponse()
        assert answer.headers["alt-svc"] == f'h3=":{self.port}"; ma=86400', answer.headers

    async def requests_and_bodies(self):
        connecting, _ = self.opened()
        async with connecting as connection:
            status, fields, body, _ = await connection.call(b"GET", b"/path?query")
            assert (status, body, fields[b"x-framed"]) == (b"200", b"/path?query", b"none"), (status, fields, body)
            large = bytes(i % 251 for i in range(1_000_000))
            _, fields, body, _ = await connection.call(b"POST", b"/", [(b"content-length", b"1000000")], large)
            assert body == large and fields[b"x-framed"] == b"length"
            _, fields, body, _ = await connection.call(b"POST", b"/", [], large)
            assert body == large and fields[b"x-framed"] == b"chunked"

    async def many_streams_at_a_time(self):
        connecting, _ = self.opened()
        async with connecting as connection:
            answers = await asyncio.gather(*(connection.call(b"POST", b"/", [], bytes([i]) * 20_000) for i in range(90)))
            for i, (status, _, body, _) in enumerate(answers):
                assert status == b"200" and body == bytes([i]) * 20_000, i

    async def a_session_is_resumed(self):
        connecting, tickets = self.opened()
        async with connecting as connection:
            await connection.call(b"GET", b"/")
        assert tickets and not tickets[0].max_early_data_size
        connecting, _ = self.opened(session_ticket=tickets[0])
        async with connecting as connection:
            assert connection._quic.tls.session_resumed
            assert (await connection.call(b"GET", b"/"))[0] == b"200"

    async def a_connection_moves(self):
        connecting, _ = self.opened()
        async with connecting as connection:
            assert (await connection.call(b"GET", b"/"))[0] == b"200"
            loop = asyncio.get_running_loop()
            connection._transport.close()
            elsewhere = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            elsewhere.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            elsewhere.bind(("::", 0))
            await loop.create_datagram_endpoint(lambda: connection, sock=elsewhere)
            connection.change_connection_id()
            for _ in range(3):
                assert (await connection.call(b"POST", b"/", [], b"x" * 100_000))[0] == b"200"

    async def keys_are_updated(self):
        connecting, _ = self.opened()
        async with connecting as connection:
            for _ in range(3):
                assert (await connection.call(b"GET", b"/"))[0] == b"200"
                connection.request_key_update()
            assert (await connection.call(b"GET", b"/"))[0] == b"200"

    async def failures(self):
        connecting, _ = self.opened()
        async with connecting as connection:
            assert (await connection.call(b"GET", b"/", host="b.test"))[0] == b"404"
            assert (await connection.call(b"GET", b"/%zz"))[0] == b"400"
            assert (await connection.call(b"GET", b"/", [(b"x-long", b"x" * 40_000)]))[0] == b"431"
            assert (await connection.call(b"GET", b"/", [(b"connection", b"close")]))[3] == MESSAGE_ERROR
            assert (await connection.call(b"GET", b"/"))[0] == b"200"

    async def an_unknown_host_has_no_certificate(self):
        connecting, _ = self.opened("b.test")
        try:
            async with connecting:
                raise AssertionError("a handshake without a certificate")
        except ConnectionError:
            pass

    async def it_leaves_in_order(self):
        connecting, _ = self.opened()
        async with connecting as connection:
            assert (await connection.call(b"GET", b"/"))[0] == b"200"
            os.kill(self.gateway, signal.SIGTERM)
            assert await asyncio.wait_for(connection.terminated, 20) == NO_ERROR


async def call(port, certificate, gateway):
    import aioquic

    cases = Cases(port, certificate, gateway)
    names = [name for name in Cases.__dict__ if not name.startswith("_") and name != "it_leaves_in_order"] + ["it_leaves_in_order"]
    failed = []
    for name in names:
        try:
            await asyncio.wait_for(getattr(cases, name)(), 60)
        except Exception as error:
            failed.append(f"{name}: {error!r}")
    print(f"aioquic {aioquic.__version__}: {len(names) - len(failed)} of {len(names)} passed")
    if failed:
        print("failed:", *failed, sep="\n  ", file=sys.stderr)
        sys.exit(1)


def main():
    match sys.argv[1:]:
        case ["certificate", folder, host]:
            make_certificate(folder, host)
        case ["serve", port]:
            http.server.ThreadingHTTPServer.request_queue_size = 128
            http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Echo).serve_forever()
        case ["call", port, certificate, gateway]:
            asyncio.run(call(int(port), certificate, int(gateway)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
