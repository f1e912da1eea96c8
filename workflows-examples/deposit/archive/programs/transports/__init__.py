"""How a package gets to its target."""

from transports.folder import FolderSession
from transports.rest import RestSession
from transports.sftp import SftpSession

TRANSPORTS = {"folder": FolderSession, "rest": RestSession, "sftp": SftpSession}
