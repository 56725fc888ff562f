"""grpc_interop.py serve ADDRESS: a server of the interop cases. grpc_interop.py call ADDRESS METRICS: calls it, through a gateway with these metrics.

The cases are those of gRPC's interop-test-descriptions.md with messages of plain bytes, so that nothing has to be generated.
"""

import sys
import threading
import time
import urllib.request
from concurrent import futures

import grpc

SERVICE = "grpc.testing.TestService"
SIZES = [(27182, 31415), (8, 9), (1828, 2653), (45904, 58979)]
LARGE_REQUEST, LARGE_ANSWER = 271828, 314159
STATUS_MESSAGE = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


def echo_metadata(context):
    sent = dict(context.invocation_metadata())
    if INITIAL in sent:
        context.send_initial_metadata([(INITIAL, sent[INITIAL])])
    if TRAILING in sent:
        context.set_trailing_metadata([(TRAILING, sent[TRAILING])])


def empty_call(request, context):
    return b""


def unary_call(request, context):
    """Answers as many bytes as the first eight digits of the request say, or with the status that it names."""
    echo_metadata(context)
    if request.startswith(b"status "):
        context.abort(grpc.StatusCode.UNKNOWN, request[7:].decode())
    return bytes(int(request[:8]))


def streaming_input(requests, context):
    return str(sum(map(len, requests))).encode()


def streaming_output(request, context):
    for _, size in SIZES:
        yield bytes(size)


def full_duplex(requests, context):
    echo_metadata(context)
    for request in requests:
        if request.startswith(b"status "):
            context.abort(grpc.StatusCode.UNKNOWN, request[7:].decode())
        if request == b"sleep":
            time.sleep(5)
        yield bytes(int(request[:8]))


def serve(address):
    methods = {
        "EmptyCall": grpc.unary_unary_rpc_method_handler(empty_call),
        "UnaryCall": grpc.unary_unary_rpc_method_handler(unary_call),
        "StreamingInputCall": grpc.stream_unary_rpc_method_handler(streaming_input),
        "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(streaming_output),
        "FullDuplexCall": grpc.stream_stream_rpc_method_handler(full_duplex),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    assert server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


class Pings:
    """Requests of a stream that are sent when they are given."""

    def __init__(self):
        self.waiting = threading.Semaphore(0)
        self.requests = []

    def send(self, request):
        self.requests.append(request)
        self.waiting.release()

    def close(self):
        self.send(None)

    def __iter__(self):
        return self

    def __next__(self):
        self.waiting.acquire()
        request = self.requests.pop(0)
        if request is None:
            raise StopIteration
        return request


def sized(answer, request=8):
    return b"%08d" % answer + bytes(request - 8)


class Cases:
    def __init__(self, channel):
        self.empty = channel.unary_unary(f"/{SERVICE}/EmptyCall")
        self.unary = channel.unary_unary(f"/{SERVICE}/UnaryCall")
        self.input = channel.stream_unary(f"/{SERVICE}/StreamingInputCall")
        self.output = channel.unary_stream(f"/{SERVICE}/StreamingOutputCall")
        self.duplex = channel.stream_stream(f"/{SERVICE}/FullDuplexCall")
        self.unimplemented = channel.unary_unary(f"/{SERVICE}/UnimplementedCall")
        self.no_route = channel.unary_unary("/grpc.testing.UnimplementedService/UnimplementedCall")
        self.no_endpoints = channel.unary_unary("/grpc.testing.NoEndpoints/Call")

    @staticmethod
    def fails(call, code, details=None):
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() == code, error
            assert details is None or error.details() == details, repr(error.details())
            return
        raise AssertionError(f"no {code}")

    def empty_unary(self):
        assert self.empty(b"") == b""

    def large_unary(self):
        assert len(self.unary(sized(LARGE_ANSWER, LARGE_REQUEST))) == LARGE_ANSWER

    def client_streaming(self):
        requests = [bytes(size) for size, _ in SIZES]
        sizes = [27182, 8, 1828, 45904]
        assert self.input(iter(requests)) == str(sum(sizes)).encode()

    def server_streaming(self):
        assert [len(answer) for answer in self.output(b"")] == [31415, 9, 2653, 58979]

    def ping_pong(self):
        pings = Pings()
        call = self.duplex(pings)
        for request, answer in SIZES:
            pings.send(sized(answer, request))
            assert len(next(call)) == answer
        pings.close()
        assert list(call) == [] and call.code() == grpc.StatusCode.OK

    def empty_stream(self):
        assert list(self.duplex(iter([]))) == []

    def custom_metadata(self):
        metadata = [(INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab")]
        _, call = self.unary.with_call(sized(1), metadata=metadata)
        assert (INITIAL, "test_initial_metadata_value") in call.initial_metadata()
        assert (TRAILING, b"\xab\xab\xab") in call.trailing_metadata()
        stream = self.duplex(iter([sized(1)]), metadata=metadata)
        assert len(list(stream)) == 1
        assert (TRAILING, b"\xab\xab\xab") in stream.trailing_metadata()

    def status_code_and_message(self):
        self.fails(lambda: self.unary(b"status test status message"), grpc.StatusCode.UNKNOWN, "test status message")
        duplex = lambda: list(self.duplex(iter([b"status test status message"])))
        self.fails(duplex, grpc.StatusCode.UNKNOWN, "test status message")

    def special_status_message(self):
        self.fails(lambda: self.unary(b"status " + STATUS_MESSAGE.encode()), grpc.StatusCode.UNKNOWN, STATUS_MESSAGE)

    def unimplemented_method(self):
        self.fails(lambda: self.unimplemented(b""), grpc.StatusCode.UNIMPLEMENTED)

    def unimplemented_service(self):
        self.fails(lambda: self.no_route(b""), grpc.StatusCode.UNIMPLEMENTED, "no-route")

    def no_backend(self):
        self.fails(lambda: self.no_endpoints(b""), grpc.StatusCode.UNAVAILABLE, "no-endpoints")

    def cancel_after_begin(self):
        pings = Pings()
        call = self.input.future(pings)
        # So that there is something to cancel at the server.
        pings.send(b"1")
        time.sleep(0.2)
        call.cancel()
        assert call.cancelled() and call.code() == grpc.StatusCode.CANCELLED
        pings.close()

    def cancel_after_first_response(self):
        pings = Pings()
        call = self.duplex(pings)
        pings.send(sized(31415, 27182))
        assert len(next(call)) == 31415
        call.cancel()
        try:
            next(call)
        except grpc.RpcError:
            assert call.code() == grpc.StatusCode.CANCELLED
        pings.close()

    def timeout_on_sleeping_server(self):
        pings = Pings()
        pings.send(b"sleep")
        began = time.monotonic()
        self.fails(lambda: list(self.duplex(pings, timeout=0.3)), grpc.StatusCode.DEADLINE_EXCEEDED)
        assert time.monotonic() - began < 3
        pings.close()


def main():
    if sys.argv[1] == "serve":
        return serve(sys.argv[2])
    _, _, address, metrics = sys.argv
    failed = []
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        cases = Cases(channel)
        names = [name for name in vars(Cases) if not name.startswith("_") and name != "fails"]
        for name in names:
            try:
                getattr(cases, name)()
                print(f"ok      {name}")
            except Exception as error:
                failed.append(name)
                print(f"FAILED  {name}: {error!r}")
    lines = urllib.request.urlopen(metrics).read().decode().splitlines()
    counted = [line for line in lines if line.startswith("lockgate_grpc_responses_total{")]
    for status, rule in [("0", "interop"), ("2", "interop"), ("12", "interop"), ("12", "-"), ("14", "empty")]:
        if not any(f'rule="{rule}",grpc_status="{status}"' in line for line in counted):
            failed.append(f"metric of {rule} {status}")
    print(f"grpcio {grpc.__version__}: {len(names) - len([n for n in failed if n in names])} of {len(names)} passed")
    if failed:
        print("failed:", *failed, *counted, sep="\n  ", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
