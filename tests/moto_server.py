"""moto's S3 server that keeps its objects, and uploads under way, when it is restarted.

Runs in the environment that has moto: `python moto_server.py PORT STATE`. At SIGTERM it writes what
it holds to the file STATE and is gone at once, whatever requests are under way; a new one reads it.
"""

import io
import marshal
import os
import signal
import sys
import threading
from pathlib import Path

from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "bucket"
backend = s3_backends["123456789012"]["aws"]
busy = threading.Lock()


def dump(path):
    held = backend.buckets[BUCKET]
    objects = [(name, key.value, key.etag.strip('"')) for name, key in held.keys.items()]
    uploads = [
        (number, one.key_name, [(part, key.value) for part, key in one.parts.items()])
        for number, one in held.multiparts.items()
    ]
    path.write_bytes(marshal.dumps((objects, uploads)))


def load(path):
    backend.create_bucket(BUCKET, "us-east-1")
    objects, uploads = marshal.loads(path.read_bytes()) if path.exists() else ([], [])
    for name, value, etag in objects:
        backend.put_object(BUCKET, name, value, etag=etag)
    for number, name, parts in uploads:
        made = backend.create_multipart_upload(BUCKET, name, {}, "STANDARD", {}, None, None, None)
        held = backend.buckets[BUCKET].multiparts
        del held[made.id]
        made.id = number
        held[number] = made
        for part, value in parts:
            backend.upload_part(BUCKET, number, part, value)


def main(port, state):
    load(state)
    inner = DomainDispatcherApplication(create_backend_app)

    def app(environ, start_response):
        # First all of the request, which may never come: a client may have been cut off.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        with busy:
            return inner(environ, start_response)

    # For all threads, so that the signal waits for this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    WSGIRequestHandler.log = lambda *_: None
    server = make_server("127.0.0.1", port, app, threaded=True)
    print("ready", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.sigwait({signal.SIGTERM})
    # Between two requests, so that what is written is what a server would have on its disks.
    busy.acquire()
    dump(state)
    os._exit(0)


main(int(sys.argv[1]), Path(sys.argv[2]))
